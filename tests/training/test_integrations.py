"""Every block of docs/integrations.md runs, with tiny things behind the names that a reader has of his own."""

from __future__ import annotations

import random
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_training import Pad, arguments
from torch import nn
from torch.distributed.tensor import DTensor

import lidstone as ld

PAGE = Path(__file__).resolve().parents[2] / "docs" / "integrations.md"
TEXT = PAGE.read_text(encoding="utf-8")
SECTIONS = re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, flags=re.M | re.S)
BLOCKS = [
    (f"{title} {number}", code)
    for title, body in SECTIONS
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", body, flags=re.S), start=1)
]
WORDS = ["<pad>", "</s>", "<user>", "<bot>", *(f"w{number}" for number in range(300))]


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", pad_token="<pad>")
    marker = "{% if m.role == 'user' %}<user>{% else %}<bot>{% endif %}"
    fast.chat_template = "{% for m in messages %}" + marker + " {{ m.content }} </s> {% endfor %}"
    return fast


def texts(number: int = 300) -> list[str]:
    """Sentences of common and rare words, so that counts determine all discounts."""
    dice = random.Random(0)
    return [" ".join(f"w{int(300 ** dice.random()) - 1}" for _ in range(dice.randint(3, 9))) for _ in range(number)]


class Network(nn.Module):
    """What a reader calls his model."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.embedding, self.output = nn.Embedding(size, 8), nn.Linear(8, size, bias=False)

    def hidden(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.embedding(inputs))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.output(self.hidden(inputs))


def names(folder: Path) -> dict[str, Any]:
    """All that the page takes for granted."""
    import accelerate
    import lightning
    import transformers
    from datasets import Dataset
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
    from torch.utils.data import DataLoader

    torch.manual_seed(0)
    tok, size = tokenizer(), len(WORDS) + 4  # a padded output matrix
    config = transformers.GPT2Config(
        vocab_size=size, n_embd=8, n_layer=1, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=1
    )
    train = Dataset.from_list([{"input_ids": [1, *tok(text)["input_ids"], 1]} for text in texts()])
    vocab = ld.Vocabulary.from_tokenizer(tok, size=size)
    padded = Pad(pad=1)([{"input_ids": ids[:-1], "labels": ids[1:]} for ids in train["input_ids"][:8]])
    batches = [(padded["input_ids"], padded["labels"])] * 2
    network = Network(size)
    found: dict[str, Any] = {
        "ld": ld, "torch": torch, "lightning": lightning, "folder": folder, "texts": texts(), "train": train,
        "tokenizer": tok, "model": transformers.GPT2LMHeadModel(config), "vocab": vocab, "batches": batches,
        "table": ld.ModifiedKneserNey().fit(ld.count(train, vocab, order=3)),
        "arguments": arguments(folder, max_steps=2),
        "network": network, "optimizer": torch.optim.SGD(network.parameters(), lr=0.1),
        "loader": DataLoader(list(zip(*batches[0], strict=True)), batch_size=4),
        "accelerator": accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2),
        "lightning_trainer": lightning.Trainer(
            max_steps=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False,
        ),
        "init_device_mesh": init_device_mesh, "Shard": Shard, "ColwiseParallel": ColwiseParallel,
        "parallelize_module": parallelize_module,
    }  # fmt: skip
    for name in ("Trainer", "Seq2SeqTrainer", "DataCollatorForLanguageModeling", "DataCollatorWithFlattening"):
        found[name] = getattr(transformers, name)
    found["DataCollatorForSeq2Seq"] = transformers.DataCollatorForSeq2Seq
    return found


def add_translation(found: dict[str, Any]) -> None:
    import transformers
    from datasets import Dataset

    rows = found["train"]["input_ids"][:]
    found["pairs"] = Dataset.from_list([{"input_ids": ids[1:], "labels": ids[1:]} for ids in rows])
    found["seq2seq_arguments"] = arguments(found["folder"], seq2seq=True)
    config = transformers.MarianConfig(
        vocab_size=found["vocab"].size, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=64, pad_token_id=0,
        eos_token_id=1, bos_token_id=1, decoder_start_token_id=0, forced_eos_token_id=None,
    )  # fmt: skip
    found["translator"] = transformers.MarianMTModel(config)


def add_chats(found: dict[str, Any]) -> None:
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    from datasets import Dataset

    turns = zip(texts()[::2], texts()[1::2], strict=True)
    chats = [[{"role": "user", "content": one}, {"role": "assistant", "content": two}] for one, two in turns]
    found["chats"] = Dataset.from_dict({"messages": chats})
    found["SFTTrainer"] = trl.SFTTrainer
    values = {**arguments(found["folder"]).to_dict(), "bf16": False}
    found["sft_arguments"] = trl.SFTConfig(**values, eos_token=None, pad_token=None, max_length=64)


@pytest.fixture
def process_group(tmp_path: Path) -> Any:
    torch.distributed.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def run(code: str, found: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    compiled = torch.compile
    monkeypatch.setattr(torch, "compile", lambda step: compiled(step, backend="eager", fullgraph=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the frameworks, about tiny models and CPUs
        exec(compile(code, PAGE.name, "exec"), found)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("title", "code"), BLOCKS, ids=[title for title, _ in BLOCKS])
def test_the_block_runs(title: str, code: str, tmp_path: Path, request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if "VocabularyParallel" in code:
        request.getfixturevalue("process_group")
    found = names(tmp_path)
    if "translator" in code:
        add_translation(found)
    if "SFTTrainer" in code:
        add_chats(found)
    before = {name: p.detach().clone() for name, p in trained(found).named_parameters()}
    run(code, found, monkeypatch)
    if "share(" in code:
        assert found["loss"].targets.base.sum() > 0
        return
    after = dict(trained(found).named_parameters())
    moved = [name for name, value in before.items() if not same_values(value, after)]
    assert moved or any(p.grad is not None for p in after.values()), "the block trained nothing"
    if "trainer" in found and hasattr(found["trainer"], "state"):
        lines = [line for line in found["trainer"].state.log_history if "loss" in line]
        assert lines and {"nll", "plus", "minus"} <= lines[0].keys()


def trained(found: dict[str, Any]) -> nn.Module:
    """Everything that a block may train."""
    parts = [found[name] for name in ("model", "network", "translator") if name in found]
    return nn.ModuleList(parts)


def same_values(value: torch.Tensor, after: dict[str, torch.Tensor]) -> bool:
    whole = [p.full_tensor() if isinstance(p, DTensor) else p for p in after.values()]
    return any(value.shape == other.shape and torch.equal(value, other.detach()) for other in whole)


@pytest.mark.slow
@pytest.mark.parametrize("title", ["Trainer, padded rows 1", "Trainer, one argument 1", "Without holding all logits 1"])
def test_a_compiled_trainer(title: str, tmp_path: Path) -> None:
    """The mixin, the hook and the linear loss with torch_compile=True, as the table says."""
    torch._dynamo.reset()
    found = names(tmp_path)
    found["arguments"] = arguments(tmp_path, torch_compile=True, torch_compile_backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(dict(BLOCKS)[title], found)
    assert found["trainer"].state.log_history[0]["plus"] > 0


def test_the_table_leads_to_sections_that_exist() -> None:
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title, _ in SECTIONS}
    links = set(re.findall(r"\]\(#([^)]+)\)", TEXT))
    assert links and links <= anchors


def test_blocks_are_short() -> None:
    """Five lines of our own; the rest is the reader's."""
    for title, code in BLOCKS:
        ours = [line for line in code.splitlines() if "ld." in line]
        assert 1 <= len(ours) <= 5 and len(code.splitlines()) <= 14, title


@pytest.mark.slow
def test_the_blocks_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of docs/regularizer.md, one after the other."""
    monkeypatch.chdir(tmp_path)
    found = names(tmp_path)
    inputs, labels = found["batches"][0]
    rows = found["train"]["input_ids"][:]
    tables = [ld.WittenBell().fit(ld.count(rows[fold::2], found["vocab"], order=2)) for fold in (1, 0)]
    found |= {"inputs": inputs, "labels": labels, "logits": found["network"](inputs), "tables": tables}
    found |= {"loss": ld.SmoothedCrossEntropy(found["table"], gamma=0.25), "folds": torch.arange(len(labels)) % 2}
    found["more_sentences_of_ids"] = [ids[1:-1] for ids in rows]
    ld.write_arpa(found["table"], "news.arpa")
    page = PAGE.with_name("regularizer.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    assert len(blocks) == 8
    for block in blocks:
        run(block, found, monkeypatch)
    assert found["total"].item() > 0 and found["table"].require(found["vocab"]) is None
