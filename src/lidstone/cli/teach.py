"""`lidstone teach`: what trained models say at every position of a text, stored for other networks to learn from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from lidstone.cli.console import print_json, print_pairs
from lidstone.cli.evaluate import FIT_WEIGHT
from lidstone.cli.inputs import JSON, complete_runs, read_table
from lidstone.cli.tables import parse_weights
from lidstone.errors import InputError


def teach(
    models: Annotated[
        list[str],
        Argument(
            metavar="RUN... TEXT",
            autocompletion=complete_runs,
            help="Runs, model folders or checkpoints, then the text; train: the training text of the first run.",
        ),
    ],
    output: Annotated[str, Option("--output", "-o", metavar="FOLDER", help="The folder to write.")],
    top: Annotated[int, Option(min=1, help="How many words to keep at each position.")] = 64,
    sample: Annotated[
        bool, Option("--sample", help="Draw so many words, without bias, instead of keeping the most probable.")
    ] = False,
    temperature: Annotated[float, Option(help="Soften the teacher before its words are kept.")] = 1.0,
    weights: Annotated[
        str | None, Option("--weights", "-w", help="One per model, such as 2,1; equal if left out.")
    ] = None,
    cross_fit: Annotated[
        bool, Option("--cross-fit", help="Model i of K did not see the sentences i mod K, and teaches these alone.")
    ] = False,
    mix: Annotated[str | None, Option(metavar="TABLE", help="Mix with an n-gram model over the same ids.")] = None,
    ngram: Annotated[
        int | None,
        Option(min=1, max=8, metavar="N", help="Mix with modified Kneser-Ney of the text itself, of this order."),
    ] = None,
    folds: Annotated[
        int, Option(min=2, help="With --ngram: a sentence meets the n-gram model of the other folds.")
    ] = 10,
    weight: Annotated[float | None, Option(min=0, max=1, help="The weight of the n-gram model.")] = None,
    fit_weight: FIT_WEIGHT = None,
    parquet: Annotated[
        str | None, Option(metavar="FILE", help="Write it as Parquet, too: input_ids, target_token_ids, ...")
    ] = None,
    as_json: JSON = False,
) -> None:
    """Store the top log-probabilities of models at every token of a text: a teacher for SparseTargetCrossEntropy.

    An interrupted command continues where it was when it is given again.
    """
    from lidstone.lab.methods.base import Regularizer
    from lidstone.lab.run.run import quiet_transformers
    from lidstone.lab.run.scoring import SMOOTHER
    from lidstone.lab.run.teaching import teach_text
    from lidstone.ngram.smoothers.modified_kneser_ney import FALLBACK

    *runs, text = models
    shares = parse_weights(weights)
    if not runs or shares == "em":
        problem = "--weights em is for n-gram models" if runs else "a teacher needs a model and a text"
        raise InputError(problem, hint="lidstone teach RUN TEXT --output FOLDER")
    if mix is not None and ngram is not None:
        raise InputError("--mix and --ngram are two n-gram models", hint="use one of them")
    if mix is None and ngram is None and (weight is not None or fit_weight is not None):
        raise InputError("a weight needs --mix TABLE or --ngram N", hint="add the n-gram model, or leave it out")
    quiet_transformers()
    model = {"smoother": SMOOTHER, "parameters": {"fallback": FALLBACK}, "order": ngram, "folds": folds, "gamma": 0}
    teacher = teach_text(
        runs, text, output, table=None if mix is None else read_table(mix), weight=weight, valid=fit_weight,
        ngram=None if ngram is None else Regularizer.model_validate(model), top=top, sample=sample,
        temperature=temperature, weights=tuple(shares or ()), cross_fit=cross_fit,
    )  # fmt: skip
    if parquet is not None:
        teacher.save_parquet(parquet)
    facts: dict[str, Any] = {"sentences": len(teacher), "positions": int(teacher.ends[-1]), "k": teacher.k}
    facts["bytes"] = sum(file.stat().st_size for file in Path(output).iterdir() if file.is_file())
    facts["weight"] = teacher.signature["weight"]
    print_json({**facts, "signature": dict(teacher.signature)}) if as_json else print_pairs(facts)
