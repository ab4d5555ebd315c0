"""Preparing corpora: a user's own files and the named ones, cleaning, splits, the cache, and bad input."""

import errno
import io
import json
import lzma
import shutil
from contextlib import redirect_stderr

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pydantic")
pytest.importorskip("subword_nmt")
pytest.importorskip("sacremoses")

from lidstone.errors import DataError, FileFormatError, LidstoneError, RecipeError, TextError
from lidstone.files import with_checksum
from lidstone.lab.corpus import prepared as storage
from lidstone.lab.corpus.named import read_corpus
from lidstone.lab.corpus.pipeline import TextPipeline
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.recipe.recipe import load_recipe, make_recipe
from lidstone.lab.recipe.sections import Corpus
from lidstone.text.bpe import learn_merges
from lidstone.text.vocabulary import Vocabulary


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LIDSTONE_DATA", raising=False)
    return tmp_path / "cache"


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def lm(tmp_path, lines, *, tokenizer=None, **corpus):
    corpus = {"train": write(tmp_path / "train.txt", lines), **corpus}
    return make_recipe({"task": "lm", "corpus": corpus, "tokenizer": tokenizer or {"kind": "word"}})


def mt(tmp_path, pairs, *, tokenizer=None, **corpus):
    files = {
        "source": write(tmp_path / "train.de", [source for source, _ in pairs]),
        "target": write(tmp_path / "train.en", [target for _, target in pairs]),
    }
    corpus = {"train": files, "valid": files, "test": files, **corpus}
    return make_recipe({"task": "mt", "corpus": corpus, "tokenizer": tokenizer or {"kind": "word"}})


def texts(split, pipeline):
    return [pipeline.decode(ids) for ids in split]


# ---- language models


def test_own_text_becomes_ids_with_the_specials_in_front(tmp_path):
    files = {
        split: write(tmp_path / f"{split}.txt", lines)
        for split, lines in {"train": ["b a b", "", "  c\tb "], "valid": ["a z"], "test": ["c"]}.items()
    }
    prepared = prepare_corpus(make_recipe({"task": "lm", "corpus": files, "tokenizer": {"kind": "word"}}))
    # b occurs three times, a and c once each: b 4, a 5, c 6 after the four specials; z is unknown
    assert prepared.vocab.tokens == ("<bos>", "<pad>", "</s>", "<unk>", "b", "a", "c")
    assert prepared.train.target.stream.tolist() == [4, 5, 4, 2, 6, 4, 2]
    assert prepared.valid.target.stream.tolist() == [5, 3, 2]
    assert prepared.train.words.tolist() == [3, 2]
    assert (prepared.vocab.eos, prepared.vocab.unk, prepared.vocab.unpredictable) == (2, 3, (0, 1))
    assert prepared.manifest["splits"]["train"]["dropped"] == 1


def test_text_without_other_files_is_dealt_out_in_blocks(tmp_path):
    lines = [f"w{number}" for number in range(1000)]
    prepared = prepare_corpus(lm(tmp_path, lines))
    assert [len(prepared.train), len(prepared.valid), len(prepared.test)] == [800, 100, 100]
    valid = json.loads((prepared.folder / "manifest.json").read_text())["splits"]["valid"]
    assert valid["samples"] == 100


def test_a_given_test_file_leaves_only_validation_to_be_taken(tmp_path):
    lines = [f"w{number}" for number in range(1000)]
    prepared = prepare_corpus(lm(tmp_path, lines, test=write(tmp_path / "test.txt", ["x", "w1"])))
    assert [len(prepared.train), len(prepared.valid), len(prepared.test)] == [900, 100, 2]


def test_every_nth_line_goes_to_validation(tmp_path):
    lines = [f"w{number}" for number in range(1, 101)]
    recipe = lm(tmp_path, lines, valid_every=23, test=write(tmp_path / "test.txt", ["w1"]))
    folder = prepare_corpus(recipe).folder
    assert (folder / "valid.target.txt").read_text().split() == ["<unk>"] * 4
    assert (folder / "train.target.txt").read_text().split() == [f"w{n}" for n in range(1, 101) if n % 23]


def test_limit_and_fraction_thin_the_training_text_only(tmp_path):
    other = {split: write(tmp_path / f"{split}.txt", ["w1"] * 5) for split in ("valid", "test")}
    prepared = prepare_corpus(lm(tmp_path, [f"w{n}" for n in range(10)], fraction=0.5, limit=3, **other))
    assert texts(prepared.train.target, prepared.target) == ["w1", "w3", "w5"]
    assert len(prepared.valid) == len(prepared.test) == 5


def test_rare_words_and_padding_of_the_vocabulary(tmp_path):
    other = {split: write(tmp_path / f"{split}.txt", ["a"]) for split in ("valid", "test")}
    recipe = lm(
        tmp_path, ["a a b", "<unk> b c"], tokenizer={"kind": "word", "min_count": 2, "pad_to_multiple": 8}, **other
    )
    vocab = prepare_corpus(recipe).vocab
    assert vocab.tokens == ("<bos>", "<pad>", "</s>", "<unk>", "a", "b", "<unused-6>", "<unused-7>")
    assert vocab.unpredictable == (0, 1, 6, 7)


def test_bpe_is_learnt_on_training_text_and_undone_by_decode(tmp_path):
    lines = ["low low lower lowest"] * 30
    prepared = prepare_corpus(lm(tmp_path, lines, tokenizer={"kind": "bpe", "merges": 4}))
    assert texts(prepared.test.target, prepared.target)[0] == "low low lower lowest"
    assert "lowe@@" in prepared.vocab.tokens
    again = prepare_corpus(
        lm(tmp_path, lines, tokenizer={"kind": "bpe", "codes": str(prepared.folder / "codes.target.bpe")})
    )
    assert again.signature == prepared.signature


def test_the_embedded_corpus_needs_no_files():
    prepared = prepare_corpus(load_recipe("demo"))
    assert prepared.train.words.sum() > 40_000
    assert len(prepared.train) > 7 * len(prepared.valid)


def checkpoint(folder, words):
    """A small GPT-2 with a tokenizer of these words; bos, eos and pad are one token, as GPT-2 has it."""
    tokenizers, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    from lidstone.lab.recipe.sections import ModelSpec
    from lidstone.lab.run.models import build_model

    ids = {word: number for number, word in enumerate(["<end>", "<unk>", *words])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    names = {"bos_token": "<end>", "eos_token": "<end>", "pad_token": "<end>", "unk_token": "<unk>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names).save_pretrained(folder)
    options = {"n_layer": 1, "n_embd": 8, "n_head": 2, "n_positions": 16}
    specials = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    spec = ModelSpec(kind="auto", checkpoint="gpt2", options=options | specials)
    build_model(spec, 8).save_pretrained(folder)
    return str(folder)


def test_the_tokenizer_of_a_checkpoint_is_used_as_it_is(tmp_path):
    recipe = make_recipe(
        {
            "task": "lm",
            "corpus": {split: write(tmp_path / f"{split}.txt", ["a b", "b z"]) for split in ("train", "valid", "test")},
            "tokenizer": {"kind": "checkpoint"},
            "model": {"kind": "auto", "checkpoint": checkpoint(tmp_path / "model", ["a", "b"])},
        }
    )
    prepared = prepare_corpus(recipe)
    assert prepared.vocab.size == 8  # the model's embedding, larger than the tokenizer's four tokens
    assert prepared.train.target.stream.tolist() == [2, 3, 0, 3, 1, 0]
    assert prepared.target.decode([2, 3, 0]) == "a b"
    assert prepare_corpus(recipe).target == prepared.target


def test_a_checkpoint_without_tokenizer(tmp_path):
    pytest.importorskip("transformers")
    (tmp_path / "model").mkdir()
    recipe = make_recipe(
        {
            "task": "lm",
            "corpus": {"train": write(tmp_path / "train.txt", ["a b"] * 40)},
            "tokenizer": {"kind": "checkpoint"},
            "model": {"kind": "auto", "checkpoint": str(tmp_path / "model")},
        }
    )
    with pytest.raises(DataError, match=r"has no (tokenizer|configuration) that can be loaded"):
        prepare_corpus(recipe)


# ---- translation

PAIRS = [
    ("Das Haus, klein!", "The house's small."),
    ("Ja.", "Yes."),
    ("eins zwei drei vier", "one"),
    ("", "Nothing"),
    ("Gut so", "Good so"),
]


def test_parallel_text_is_tokenized_cleaned_and_lower_cased(tmp_path):
    recipe = mt(tmp_path, PAIRS, tokenization="moses", lowercase=True, max_ratio=1.5, max_length=10)
    prepared = prepare_corpus(recipe)
    folder = prepared.folder
    assert (folder / "train.source.txt").read_text() == "das haus , klein !\nja .\ngut so\n"
    assert (folder / "train.target.txt").read_text() == "the house &apos;s small .\nyes .\ngood so\n"
    # validation and test lose only the pair with an empty side
    assert len(prepared.valid) == len(prepared.test) == 4
    assert prepared.test.references[0] == "the house's small."
    assert prepared.manifest["splits"]["train"]["dropped"] == 2


def test_source_and_target_may_share_merges_and_vocabulary(tmp_path):
    pairs = [("haus haus haut", "house mouse house")] * 4
    tokenizer = {"kind": "bpe", "merges": 5, "shared_vocabulary": True}
    shared = prepare_corpus(mt(tmp_path, pairs, tokenizer=tokenizer))
    assert shared.source.vocabulary == shared.vocab
    assert shared.source.bpe == shared.target.bpe
    apart = prepare_corpus(mt(tmp_path, pairs, tokenizer={"kind": "bpe", "merges": 5, "joint": False}))
    assert apart.source.vocabulary != apart.vocab
    assert apart.source.bpe != apart.target.bpe


def test_new_text_is_read_as_the_training_text_was(tmp_path):
    prepared = prepare_corpus(mt(tmp_path, PAIRS[:2] * 3, tokenization="moses", lowercase=True))
    ids = prepared.source.encode(["Das HAUS!", "ja ."])
    assert [prepared.source.decode(line) for line in ids] == ["das haus!", "ja."]
    restored = TextPipeline.from_dict(json.loads(json.dumps(prepared.target.to_dict())))
    assert restored == prepared.target


def test_decoding_stops_at_the_end_of_the_sentence(tmp_path):
    prepared = prepare_corpus(mt(tmp_path, [("a b", "c d")] * 3))
    c, d = prepared.target.encode(["c d"])[0]
    assert prepared.target.decode([2, c, d, 2, c, 1, 1]) == "c d"  # decoders start with eos and end with padding
    assert prepared.target.decode([]) == ""


# ---- the cache


def test_the_same_text_and_settings_are_prepared_once(tmp_path, cache):
    recipe = mt(tmp_path, PAIRS, tokenization="moses")
    first = prepare_corpus(recipe)
    stamp = (first.folder / "manifest.json").stat().st_mtime_ns
    second = prepare_corpus(recipe)
    assert (second.folder / "manifest.json").stat().st_mtime_ns == stamp
    assert first.folder.parent == cache / "prepared"
    for split in ("train", "valid", "test"):
        old, new = getattr(first, split), getattr(second, split)
        assert np.array_equal(old.target.stream, new.target.stream)
        assert np.array_equal(old.source.ends, new.source.ends)
        assert (old.sha256, old.references, old.words.tolist()) == (new.sha256, new.references, new.words.tolist())
    assert (second.target, second.source) == (first.target, first.source)
    moved = mt(tmp_path / "..", PAIRS, tokenization="moses")
    assert prepare_corpus(moved).folder == first.folder  # where the files lie does not matter


@pytest.mark.parametrize("change", [{"lowercase": True}, {"limit": 1}, {"max_length": 3}])
def test_other_settings_are_prepared_anew(tmp_path, change):
    assert prepare_corpus(mt(tmp_path, PAIRS)).folder != prepare_corpus(mt(tmp_path, PAIRS, **change)).folder


def test_other_text_is_prepared_anew(tmp_path):
    first = prepare_corpus(mt(tmp_path, PAIRS))
    assert prepare_corpus(mt(tmp_path, PAIRS[:2])).folder != first.folder


@pytest.mark.parametrize("file", ["ids.npz", "target.json", "manifest.json"])
def test_a_damaged_cache_is_noticed_and_made_again(tmp_path, file):
    recipe = mt(tmp_path, PAIRS)
    folder = prepare_corpus(recipe).folder
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[:-7] + b"damaged")
    with pytest.raises(FileFormatError, match=r"the prepared corpus .* is damaged"):
        storage.load(folder)
    assert len(prepare_corpus(recipe).test) == 4
    assert (folder / file).read_bytes() == content or file == "ids.npz"
    storage.load(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"name": None},
        {"key": 3},
        {"settings": {}},
        {"settings": {"corpus": 1}},
        {"vocabulary": {"target": 9 * 9}},
        {"splits": {}},
    ],
)
def test_a_manifest_that_lacks_what_others_read_is_refused(tmp_path, change):
    folder = prepare_corpus(mt(tmp_path, PAIRS)).folder
    manifest = json.loads((folder / "manifest.json").read_text()) | change
    (folder / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
    with pytest.raises(FileFormatError, match=r"^the prepared corpus [^\n]* is damaged[^\n]*$"):
        storage.load(folder)


@pytest.mark.parametrize("faster", [True, False])
def test_another_users_process_that_was_faster_is_no_error(tmp_path, monkeypatch, cache, faster):
    def refuse(made, folder):
        """Its folder is complete and may not be replaced."""
        if faster:
            shutil.copytree(made, folder)
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    recipe = lm(tmp_path, ["a b", "b c", "c a"] * 20)
    monkeypatch.setattr("lidstone.files._replace_folder", refuse)
    if faster:
        prepared = prepare_corpus(recipe)
        assert prepare_corpus(recipe).train.sha256 == prepared.train.sha256
        assert [folder.name for folder in (cache / "prepared").iterdir()] == [prepared.key]
    else:
        with pytest.raises(LidstoneError, match=r"cannot write .*Permission denied"):
            prepare_corpus(recipe)
        assert not any((cache / "prepared").iterdir())


def test_a_folder_of_the_users_choice(tmp_path, cache):
    prepared = prepare_corpus(lm(tmp_path, ["a b"] * 40), tmp_path / "mine")
    names = {path.name for path in (tmp_path / "mine").iterdir()}
    assert {"manifest.json", "ids.npz", "target.json", "train.target.txt"} <= names
    assert storage.load(tmp_path / "mine").signature == prepared.signature
    assert not (cache / "prepared").exists()


# ---- finding corpora


def test_corpora_are_found_compressed_in_the_folder_the_user_names(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "wikitext-2"
    folder.mkdir(parents=True)
    for part in ("train", "valid", "test"):
        with lzma.open(folder / f"wiki.{part}.tokens.xz", "wt") as file:
            file.write(f" \n = {part} = \n \n the <unk> .\n")
    monkeypatch.setenv("LIDSTONE_DATA", str(tmp_path / "data"))
    recipe = make_recipe({"task": "lm", "corpus": {"name": "wikitext2"}, "tokenizer": {"kind": "word"}})
    prepared = prepare_corpus(recipe)
    assert texts(prepared.train.target, prepared.target) == ["= train =", "the <unk> ."]
    assert prepared.name == "wikitext2"


def test_the_original_iwslt_distribution_is_read_as_fairseq_reads_it(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "iwslt14-de-en"
    folder.mkdir(parents=True)
    for language in ("de", "en"):
        talk = ["<url>http://x</url>", "<title>Titel</title>", *[f"Satz {n}." for n in range(46)]]
        write(folder / f"train.tags.de-en.{language}", talk)
        for name in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"):
            write(folder / f"IWSLT14.{name}.de-en.{language}.xml", ["<doc>", f'<seg id="1"> {name}’s </seg>'])
    monkeypatch.setenv("LIDSTONE_DATA", str(tmp_path / "data"))
    prepared = prepare_corpus(load_recipe("iwslt14_deen", ["tokenizer.kind=word"]))
    assert [len(prepared.train), len(prepared.valid), len(prepared.test)] == [45, 2, 5]
    # Titel is line 1, Satz n line n + 2: lines 23 and 46 go to validation, whose numbers training never saw
    train = (prepared.folder / "train.source.txt").read_text().splitlines()
    assert train[0] == "titel"
    assert {"satz 21 .", "satz 44 ."}.isdisjoint(train)
    assert "satz 45 ." in train
    assert prepared.test.references[1].startswith("tedx")


def test_a_corpus_that_is_not_here_is_answered_with_how_to_get_it():
    with pytest.raises(DataError, match="multi30k is not on this machine") as caught:
        prepare_corpus(load_recipe("wmt14_ende_small"))
    assert "lidstone data get multi30k" in caught.value.hint


def test_a_corpus_that_cannot_be_fetched_is_not_said_to_be():
    with pytest.raises(DataError, match="tatoeba is not on this machine") as caught:
        prepare_corpus(make_recipe({"task": "lm", "corpus": {"name": "tatoeba"}}))
    assert caught.value.hint == "set LIDSTONE_DATA to a folder of corpora"


def test_tatoeba_keeps_translations_of_one_sentence_together(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "tatoeba-de-en"
    folder.mkdir(parents=True)
    lines = [f"Sentence {n}.\tSatz {n}, {variant}." for n in range(300) for variant in "ab"]
    write(folder / "deu-eng.2018-05-13.tsv", lines)
    monkeypatch.setenv("LIDSTONE_DATA", str(tmp_path / "data"))
    raw = read_corpus(Corpus(name="tatoeba"), "mt")
    english = [{target for _, target in part} for part in (raw.train, raw.valid, raw.test)]
    assert [len(part) for part in (raw.train, raw.valid, raw.test)] == [2 * len(side) for side in english]
    assert english[0].isdisjoint(english[1] | english[2])
    assert raw.train[0] == ("Satz 0, a.", "Sentence 0.")


def test_wmt14_is_read_from_the_files_of_its_archives(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "wmt14-en-de"
    folder.mkdir(parents=True)
    for language in ("en", "de"):
        for stem in ("europarl-v7", "commoncrawl", "news-commentary-v12"):
            write(folder / f"{stem}.de-en.{language}", [f"{stem} {language}"] * 100)
    write(folder / "newstest2014-deen-src.en.sgm", ['<seg id="1">One – two</seg>'])
    write(folder / "newstest2014-deen-ref.de.sgm", ['<seg id="1">Eins – zwei</seg>'])
    monkeypatch.setenv("LIDSTONE_DATA", str(tmp_path / "data"))
    prepared = prepare_corpus(load_recipe("wmt14_ende", ["tokenizer.merges=20", "corpus.normalize=false"]))
    assert [len(prepared.train), len(prepared.valid), len(prepared.test)] == [297, 3, 1]
    assert prepared.test.references == ("Eins – zwei",)
    assert prepared.source.vocabulary == prepared.vocab


def test_an_unknown_corpus_is_answered_with_the_nearest_name():
    with pytest.raises(RecipeError, match="no corpus 'wikitext'") as caught:
        prepare_corpus(make_recipe({"task": "lm", "corpus": {"name": "wikitext"}}))
    assert caught.value.hint == "did you mean wikitext2?"


# ---- bad input


def test_parallel_files_of_different_length(tmp_path):
    recipe = mt(tmp_path, PAIRS)
    write(tmp_path / "train.en", ["only", "two"])
    with pytest.raises(DataError, match=r"train\.de has 5 lines but .*train\.en has 2: line 3 has no partner"):
        prepare_corpus(recipe)


def test_nothing_left_after_filtering(tmp_path, cache):
    with pytest.raises(DataError, match="no train samples are left: 5 were read"):
        prepare_corpus(mt(tmp_path, PAIRS, min_length=50))
    assert not (cache / "prepared").exists()


def test_an_empty_training_file(tmp_path):
    with pytest.raises(DataError, match="no train samples are left: 0 were read"):
        prepare_corpus(lm(tmp_path, []))


def test_a_missing_file(tmp_path):
    with pytest.raises(TextError, match=r"cannot read .*nowhere"):
        prepare_corpus(make_recipe({"task": "lm", "corpus": {"train": str(tmp_path / "nowhere.txt")}}))


def test_a_missing_codes_file(tmp_path):
    with pytest.raises(TextError, match=r"cannot read .*nowhere"):
        prepare_corpus(lm(tmp_path, ["a b"] * 40, tokenizer={"codes": str(tmp_path / "nowhere.bpe")}))


def test_reserved_words_in_the_text(tmp_path):
    with pytest.raises(TextError, match="the text has </s> as a word"):
        prepare_corpus(lm(tmp_path, ["a </s> b"] * 40))


def test_text_without_a_word_to_split(tmp_path):
    with pytest.raises(TextError, match="no word of two letters"):
        prepare_corpus(lm(tmp_path, ["a b c"] * 40, tokenizer={"kind": "bpe"}))


# ---- merges: subword-nmt is the judge


def by_subword_nmt(words, merges):
    from subword_nmt.learn_bpe import learn_bpe

    codes = io.StringIO()
    with redirect_stderr(io.StringIO()):
        learn_bpe(
            io.StringIO("".join(f"{word} {count}\n" for word, count in words.items())), codes, merges, is_dict=True
        )
    return [tuple(line.split(" ")) for line in codes.getvalue().splitlines()[1:]]


@settings(max_examples=80, deadline=None)
@given(
    words=st.dictionaries(st.text("abc\\", min_size=2, max_size=9), st.integers(1, 300), min_size=2, max_size=60),
    merges=st.integers(1, 250),
)
def test_merges_are_those_of_subword_nmt(words, merges):
    reference = by_subword_nmt(words, merges)
    assert learn_merges(words, merges)[: len(reference)] == reference
    assert len(learn_merges(words, merges)) == len(reference)


def test_merges_are_those_of_subword_nmt_even_with_unusual_spaces_inside_words():
    words = {"ab\u00a0cab": 9, "cab": 7, "b\u2003ab": 5, "\u00a0abab": 4}
    assert learn_merges(words, 20) == by_subword_nmt(words, 20)


def test_special_tokens_in_the_text_of_a_checkpoint_are_refused_with_their_line(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({"<pad>": 0, "</s>": 1, "<unk>": 2, "a": 3, "b": 4}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
    fast.save_pretrained(tmp_path)
    pipeline = TextPipeline(vocab=Vocabulary.from_tokenizer(fast), checkpoint=str(tmp_path))
    assert [ids.tolist() for ids in pipeline.encode(["a  b", "c"])] == [[3, 4], [2]]
    for text, word in (("a </s>", "</s>"), ("<pad> b", "<pad>")):
        with pytest.raises(TextError, match=f"line 2 has {word}"):
            pipeline.encode(["a", text])


def test_a_checkpoint_without_tokenizer_files_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(DataError, match="has no tokenizer"):
        TextPipeline(checkpoint=str(tmp_path)).tokenizer  # noqa: B018


def test_a_folder_of_other_files_is_never_replaced(tmp_path):
    precious = tmp_path / "thesis"
    precious.mkdir()
    (precious / "chapter1.txt").write_text("years of work")
    with pytest.raises(DataError, match="not a prepared corpus"):
        prepare_corpus(load_recipe("demo"), precious)
    assert (precious / "chapter1.txt").read_text() == "years of work"


def test_a_prepared_corpus_has_the_name_of_the_recipe_that_asks(tmp_path):
    path = str(write(tmp_path / "a.txt", ["a b", "b a", "a a"] * 20))
    for name in ("first", "second"):
        recipe = make_recipe({"task": "lm", "name": name, "corpus": {"train": path}, "tokenizer": {"kind": "word"}})
        assert prepare_corpus(recipe).name == name


def test_words_are_what_the_tokenizer_takes_for_words(tmp_path):
    path = str(write(tmp_path / "a.txt", ["il y a 10\xa0% de\u3000tout", "il y a tout"] * 20))
    recipe = make_recipe({"task": "lm", "corpus": {"train": path}, "tokenizer": {"kind": "word"}})
    train = prepare_corpus(recipe).train
    assert int(train.words.sum()) == len(train.target.stream) - len(train)


@pytest.mark.parametrize(
    ("corpus", "message"),
    [({"name": "embedded"}, "embedded has no translations"), ({"name": "tatoeba", "target_language": "fr"}, "no fr")],
)
def test_a_corpus_without_these_languages_is_refused(corpus, message):
    with pytest.raises(RecipeError, match=message):
        read_corpus(Corpus(**corpus), "mt")


def test_a_name_may_begin_with_a_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "~notes.txt", ["a b"])
    (tmp_path / "mine.yaml").write_text("task: lm\ncorpus: {train: ~notes.txt, valid: ~/valid.txt}\n")
    corpus = load_recipe(tmp_path / "mine.yaml").corpus
    assert corpus.train.target == (str(tmp_path / "~notes.txt"),)
    assert corpus.valid.target == (str(tmp_path / "valid.txt"),)
