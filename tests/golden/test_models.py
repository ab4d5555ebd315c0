"""The paper's parameter counts, and checkpoints that live without lidstone."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from lidstone.errors import InputError, VocabularyMismatch  # noqa: E402
from lidstone.lab.recipe.sections import ModelSpec  # noqa: E402
from lidstone.lab.run.models import build_model, load_model, parameter_count, sinusoids  # noqa: E402

TINY = ModelSpec(layers=2, width=16, heads=2, ffn=32, dropout=0.0, max_positions=12)
TINY_MT = ModelSpec(kind="transformer-mt", layers=1, width=16, heads=2, ffn=32, dropout=0.0, max_positions=12)
IWSLT = ModelSpec(kind="transformer-mt", layers=6, width=512, heads=4, ffn=1024, dropout=0.3)


# Per layer: attention 4 (512*512 + 512) + ffn 2*512*2048 + 2048 + 512 + two norms 4*512 = 3,152,384.
# Six layers 18,914,304; tied embeddings 512 V: V = 76,624 gives 58,145,792 and V = 16,936 gives 27,585,536.
@pytest.mark.parametrize(("vocab_size", "count"), [(76_624, 58_145_792), (16_936, 27_585_536)])
def test_language_model_has_the_papers_parameter_count(vocab_size, count):
    with torch.device("meta"):
        model = build_model(ModelSpec(), vocab_size)
    assert parameter_count(model) == count
    assert all(weight.requires_grad for weight in model.parameters())  # sinusoids are no parameters


def test_translation_model_has_the_papers_parameter_count():
    with torch.device("meta"):
        model = build_model(IWSLT, 6_632, source_vocab_size=8_848)
    assert parameter_count(model) == 39_469_056


def test_a_shared_vocabulary_saves_one_embedding_matrix():
    with torch.device("meta"):
        apart = build_model(TINY_MT, 20, source_vocab_size=20)
        shared = build_model(TINY_MT, 20, source_vocab_size=20, shared_vocabulary=True)
    assert parameter_count(apart) - parameter_count(shared) == 20 * 16


def test_shared_vocabularies_must_agree():
    with pytest.raises(VocabularyMismatch, match="30 source and 20 target"):
        build_model(TINY_MT, 20, source_vocab_size=30, shared_vocabulary=True)


def test_the_language_model_knows_positions_before_training():
    # Row t + 2 of OPT's table serves position t; fairseq's ratio of embedding to position is sqrt(width) : 1.
    model = build_model(TINY, 20)
    table = model.model.decoder.embed_positions.weight
    assert torch.allclose(table, sinusoids(14, 16) / 4)
    embeddings = model.get_input_embeddings().weight
    assert embeddings[1].abs().sum() == 0
    assert 0.15 < embeddings[2:].std() < 0.35  # 16 ** -0.5 = 0.25


def test_training_never_moves_the_positions():
    model = build_model(TINY, 20)
    before = model.model.decoder.embed_positions.weight.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    ids = torch.tensor([[2, 5, 6, 7]])
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    assert torch.equal(model.model.decoder.embed_positions.weight, before)


STRANGER = """
import sys, torch, transformers
model = getattr(transformers, sys.argv[1]).from_pretrained(sys.argv[2]).eval()
ids = torch.tensor([[2, 5, 6, 7, 4]])
inputs = {"input_ids": ids}
if model.config.is_encoder_decoder:
    inputs["decoder_input_ids"] = ids
with torch.no_grad():
    logits = model(**inputs).logits
generated = model.generate(ids, max_new_tokens=4, do_sample=False, num_beams=2)
torch.save([logits, generated], sys.argv[3])
assert not any(name.split(".")[0] == "lidstone" for name in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "name"), [(TINY, "OPTForCausalLM"), (TINY_MT, "MarianMTModel")])
def test_a_process_without_lidstone_reads_the_checkpoint(tmp_path, spec, name):
    torch.manual_seed(3)
    model = build_model(spec, 20).eval()
    model.save_pretrained(tmp_path / "model")
    answer = tmp_path / "answer.pt"
    command = [sys.executable, "-c", STRANGER, name, str(tmp_path / "model"), str(answer)]
    subprocess.run(command, check=True, capture_output=True)
    logits, generated = torch.load(answer)
    ids = torch.tensor([[2, 5, 6, 7, 4]])
    inputs = {"input_ids": ids, **({"decoder_input_ids": ids} if spec is TINY_MT else {})}
    with torch.no_grad():
        assert torch.equal(model(**inputs).logits, logits)
    assert torch.equal(model.generate(ids, max_new_tokens=4, do_sample=False, num_beams=2), generated)


def test_a_reloaded_language_model_keeps_its_positions_fixed(tmp_path):
    model = build_model(TINY, 20).eval()
    model.save_pretrained(tmp_path)
    again = load_model(tmp_path).eval()
    assert parameter_count(again) == parameter_count(model)
    ids = torch.tensor([[2, 5, 6]])
    with torch.no_grad():
        assert torch.equal(again(input_ids=ids).logits, model(input_ids=ids).logits)


def test_auto_builds_a_known_model_type():
    options = {"n_layer": 1, "n_embd": 8, "n_head": 2, "n_positions": 16}
    model = build_model(ModelSpec(kind="auto", checkpoint="gpt2", options=options), 30)
    assert type(model).__name__ == "GPT2LMHeadModel"
    assert model.config.vocab_size == 30
    assert model.config.eos_token_id == 2


def test_auto_loads_a_local_checkpoint_and_checks_its_vocabulary(tmp_path):
    model = build_model(TINY, 20)
    model.save_pretrained(tmp_path)
    spec = ModelSpec(kind="auto", checkpoint=str(tmp_path))
    loaded = build_model(spec, 20)
    assert torch.equal(loaded.get_input_embeddings().weight, model.get_input_embeddings().weight)
    with pytest.raises(VocabularyMismatch, match="has 20 ids, the data's vocabulary 21"):
        build_model(spec, 21)


def test_auto_loads_a_configuration_file(tmp_path):
    build_model(TINY, 20).config.to_json_file(tmp_path / "config.json")
    model = build_model(ModelSpec(kind="auto", checkpoint=str(tmp_path / "config.json")), 25)
    assert model.get_output_embeddings().weight.shape == (25, 16)


def test_auto_without_a_usable_checkpoint_is_an_error():
    with pytest.raises(ValueError, match="kind auto needs a checkpoint"):
        ModelSpec(kind="auto")
    with pytest.raises(InputError, match="no-such-model is not a checkpoint"):
        build_model(ModelSpec(kind="auto", checkpoint="no-such-model"), 20)


def test_an_empty_checkpoint_folder_is_an_error(tmp_path):
    with pytest.raises(InputError, match="has no model"):
        build_model(ModelSpec(kind="auto", checkpoint=str(tmp_path)), 20)


def test_a_width_that_heads_cannot_share_is_an_error():
    with pytest.raises(ValueError, match="width of 10 cannot be split over 3 heads"):
        ModelSpec(width=10, heads=3)
