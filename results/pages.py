"""docs/results.md, its pictures, the pages and the README's summary, from the runs in this folder: `make results`."""

from __future__ import annotations

from collections.abc import Sequence

import results
from lidstone.files import write_text
from results.chapters import grammar, lafand, language_modelling, tatoeba, translation
from results.opening import Text, advice, missing_cells, studied, summary, texts, translations
from results.study import Study

MARKS = "<!-- results -->", "<!-- end of results -->"
LAFAND = ("lafand_en_ibo", "lafand_en_swa")
STUDIES = ("tatoeba", *LAFAND, "wikitext2", "multi30k")
INTRO = """# Results

Do smoothing-based regularizers help, and should one train a network at all? This page is written by `make results`
from the runs in `results/`: every score and every yes or no is computed from them. `results/wikitext2.runs` and so on
have all runs of a study, each with its recipe, versions, learning curve and the score of every test sentence. Every
setting of a study's grid is on a page of its own, `results/wikitext2.html` and so on, which `make results` writes.
"""
METHOD = """## How settings were chosen

Settings were chosen on validation text with the first seed. In the studies of WikiText-2 and Multi30k the unregularized
model was tuned first (learning rate, dropout, early stopping), and all others use what was best for it; the grids of
strengths, in the recipes, are small and of unequal size, and some were widened once their best lay at an edge. A wider
search could favour the methods that had fewer tries. In the studies of Tatoeba and Igbo every method is given a search
of equal size: on Tatoeba six settings, four of strength and dropout (without regularizer: four of dropout), and in the
best of them a lower learning rate and longer training, which were not combined; on Igbo three strengths (without
regularizer: rates of dropout). What has not been run is listed above. On Tatoeba a higher learning rate, 0.005, was
tried for none and the 4-grams and was worse for both on validation, after which the lower one was kept; last, none was
trained with a dropout of 0.25 for 20 epochs, which was no better alone. On Igbo the strength 0.4 was tried for label
smoothing and modified Kneser-Ney first; it was worse than 0.1 for both, and 0.05 took its place in the grid of every
method. For Swahili only the unregularized model was tuned (dropout): the regularizers have a dropout of 0.1 and the
strengths that validation chose on Igbo. In the two studies of LAFAND-MT, learning rate and length of training are the
same for all methods.

In the studies of WikiText-2 the runs with a score of the mixture were trained again, later and on another machine than
those without one. The test perplexities of single runs moved by up to 1.2 %, means of three and five seeds by up to
0.6 %: smaller differences between rows with and without that score say nothing about the methods.
"""
AGAIN = """## How to reproduce

```console
$ lidstone unpack results/wikitext2.runs --output runs/wikitext2                # finished trainings are not repeated
$ lidstone sweep results/wikitext2.yaml --output runs/wikitext2 --jobs 2        # continues where it stopped
$ lidstone pack runs/wikitext2 --output results/wikitext2.runs                  # adds what is new
$ python -m results ngrams                                                      # the n-gram model alone
$ make results
```

The same holds for `multi30k`, `tatoeba`, `lafand_en_ibo` and `lafand_en_swa`. A run is determined by its recipe and
seed: on the same machine `lidstone train runs/wikitext2/ID --output again` gives the same metrics to the last digit;
`python -m results again results/wikitext2.runs/ID` does so and compares. `python -m results rescore RUN...` adds the
n-gram model and the mixture to runs that still have their model, and `python -m results blimp BLIMP.jsonl RUN...`
measures their minimal pairs.
"""


def write_pages() -> None:
    """Write docs/results.md and what it shows, and the summary of the README."""
    parts = [INTRO, opening(), METHOD, tatoeba(), *map(lafand, LAFAND), language_modelling(), translation(), AGAIN]
    write_text(results.DOCS / "results.md", "\n".join(filter(None, parts)))
    write_text(results.README, with_headline(results.README.read_text(encoding="utf-8")))


def opening() -> str:
    """The opening: what to use, each with its number, and what is unfinished."""
    waiting = {study.recipe.name: missing_cells(study) for study in map(Study.of, STUDIES)}
    unfinished = [f"- {name}: {cells}" for name, cells in waiting.items() if cells]
    return "\n".join(
        [
            "## Summary\n",
            headline(texts()),
            *(["Not run, of the settings and seeds in the recipes:\n", *unfinished, ""] if unfinished else []),
        ]
    )


def headline(told: Sequence[Text]) -> str:
    """What to use when, each with its number: a table of all texts, and sentences about those to be told."""
    complete = [study for study in map(Study.of, ("multi30k", *LAFAND)) if not missing_cells(study)]
    return "\n".join(
        [
            "Test perplexity per token; rows differ in vocabulary and cannot be compared. The n-gram model is modified "
            "Kneser-Ney of the same training text, on the same ids; the mixture is made at test time, with a weight "
            "chosen on validation. The networks of WikiText-2 were scored at positions that they were not trained on, "
            "so their perplexities are too high; that study is to be repeated.\n",
            summary(texts()),
            *advice(told),
            *grammar(Study.of("tatoeba")),
            translations(complete),
            "",
        ]
    )


def with_headline(text: str) -> str:
    """The README with the summary between its marks; its sentences are about the two studies with all methods."""
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    return f"{before}{MARKS[0]}\n{headline([studied('tatoeba'), studied('wikitext2')])}{MARKS[1]}{after}"
