"""Models as files: `safetensors` (lidstone's own), `arpa`, `kenlm`; the bytes, the checks and the addresses of them."""
