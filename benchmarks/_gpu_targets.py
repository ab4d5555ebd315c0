"""Compile every Triton program for real GPUs, without one: the machine code, its registers and its spills."""

from __future__ import annotations

import re
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

TARGETS: dict[str, tuple[str, Any, int]] = {
    "sm_80": ("cuda", 80, 32),
    "sm_90": ("cuda", 90, 32),
    "sm_100": ("cuda", 100, 32),
    "gfx942": ("hip", "gfx942", 64),
}
TYPES = {"float32": "*fp32", "bfloat16": "*bf16", "float16": "*fp16"}
ARGUMENTS = (
    dict.fromkeys(
        ("labels", "contexts", "out_state", "out_slot", "states", "slots", "shifts", "ids", "taught_ids"), "*i64"
    )
    | dict.fromkeys(("first", "words", "suffixes", "tokens"), "*i32")
    | dict.fromkeys(("positions", "time", "steps", "vocab", "batch_stride", "time_stride"), "i32")
    | dict.fromkeys(("out_batch_stride", "out_time_stride", "number", "k"), "i32")
    | dict.fromkeys(("predicted", "out_known", "plan_known"), "*u8")
)
# dtype of the logits, order (0: plain cross-entropy), form
CASES = (
    ("bfloat16", 0, "token"),
    ("bfloat16", 3, "token"),
    ("float16", 8, "ngram"),
    ("bfloat16", 3, "teacher"),
    ("float32", 1, "ngram"),
)


class Compiled(NamedTuple):
    """One program for one GPU."""

    program: str
    target: str
    dtype: str
    order: int
    form: str
    """token, ngram or teacher"""
    warps: int
    registers: int
    """per thread"""
    spilled: int
    """bytes per thread that did not fit into registers"""
    code_bytes: int


def compile_all(
    targets: tuple[str, ...] = tuple(TARGETS), cases: tuple[tuple[str, int, str], ...] = CASES, size: int = 50_000
) -> Iterator[Compiled]:
    """Every program in every case, as it is launched for rows of `size` logits."""
    from lidstone.loss.kernels import triton as gpu
    from lidstone.loss.kernels.protocol import TableFacts

    for target in targets:
        for dtype, order, form in cases:
            facts, taught = TableFacts(order, form == "ngram", 0), {"TAUGHT": form == "teacher"}
            constants = gpu.launch(size, object() if order else None, facts)
            yield compile_program(gpu.gradient_program, target, dtype, form, constants | taught)
            some = {"ORDER": order, "BLOCK": gpu.POSITIONS_AT_ONCE, "num_warps": 4}
            if form == "teacher":  # its losses are those of the token form, and a gather
                yield compile_program(gpu.probabilities_program, target, dtype, form, some)
                continue
            yield compile_program(gpu.losses_program, target, dtype, form, constants)
            if order:
                yield compile_program(gpu.plan_program, target, dtype, form, some | {"NGRAM": facts.ngram})


def compile_program(program: Any, target: str, dtype: str, form: str, launch: dict[str, Any]) -> Compiled:
    """Compile a program for a target; `launch` holds its constants and its options."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    constants = {name: value for name, value in launch.items() if name.isupper()}
    options = {name: value for name, value in launch.items() if not name.isupper()}
    signature = {name: "constexpr" if name in constants else kind_of(name, dtype) for name in program.arg_names}
    places = {(program.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=program, signature=signature, constexprs=places)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="TRITON_DEFAULT_FP_FUSION")
        made = triton.compile(source, target=GPUTarget(*TARGETS[target]), options=options)
    registers, spilled = amd_resources(made) if target.startswith("gfx") else nvidia_resources(made)
    order = 0 if constants.get("PLAIN") else constants["ORDER"]
    code = made.asm["hsaco" if target.startswith("gfx") else "cubin"]
    facts = (dtype, order, form, options["num_warps"])
    return Compiled(program.__name__, target, *facts, registers, spilled, len(code))


def kind_of(name: str, dtype: str) -> str:
    """The type of a program's argument, by its name."""
    return TYPES[dtype] if name in ("logits", "out") else ARGUMENTS.get(name, "*fp32")


def nvidia_resources(made: Any) -> tuple[int, int]:
    """Registers, and bytes of stack and local memory, as cuobjdump reads them from the machine code."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(made.asm["cubin"])
        command = [str(tool), "--dump-resource-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers, stack, local = (int(number(rf"{name}:(\d+)", said)) for name in ("REG", "STACK", "LOCAL"))
    return registers, stack + local


def amd_resources(made: Any) -> tuple[int, int]:
    """Vector registers, and bytes of private memory, as the assembler notes them."""
    text = made.asm["amdgcn"]
    return int(number(r"\.vgpr_count:\s+(\d+)", text)), int(number(r"\.private_segment_fixed_size:\s+(\d+)", text))


def number(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise ValueError(f"the compiler does not say {pattern}")
    return found[1]
