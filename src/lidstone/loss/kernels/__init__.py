"""The loss and its gradient: `cpu`, `gpu` (Triton), and `tensors` (plain tensor code) for every other device."""
