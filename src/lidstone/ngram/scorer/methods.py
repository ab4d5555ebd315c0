"""Methods of Python objects that are compiled code from the first to the last byte: no Python runs in between.

A call of a compiled function through numba takes 200 ns, and one of a Python method around it as much again: twice the
work of scoring a word. So the methods that decoders call for each word, and pipelines for each sentence, are functions
with the signature that Python itself calls, which take objects apart with Python's C interface (its stable part).

    method(score_word, ...), method(score_sentence, ...)    built-in functions

The code handles what is usual: exact types, positional arguments, valid text. Whatever else it meets it hands over to
`slow`, a Python function, which gives the answer or raises the error. A method holds references to all that its context
gives by address.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.ccallback import CFunc
from numba.extending import intrinsic

from lidstone.jit import compile_elsewhere, helper, inlined, mark_cache, wait_for
from lidstone.ngram.scorer.blocks import score_blocks
from lidstone.ngram.scorer.step import find_word, step
from lidstone.ngram.scorer.tries import UNK
from lidstone.text.memory import (
    SIGN,
    load_f32,
    load_i64,
    load_item,
    load_u32,
    scratch,
    store_i64,
    store_u64,
)
from lidstone.text.tokens import NONE, word_hash

STATE_BYTES = 72
"""The bytes of a state (`step.py`), 60 and 4 to spare; and the number of its model (`OWNER`), 8."""
OWNER = 64
LONGEST = 4096
"""Bytes of the longest sentence that is scored without a copy on the heap."""

LAYOUT, NUMBER, STATE, NAME, STR, BYTES, WHOLE = map(np.int64, range(7))
"""Places in a context, int64: the address of the model's layout, the model's number; addresses of objects: the type of
states, the name of the attribute that holds their bytes, the types of texts; whether all of an answer is wanted."""


def _function(name: str, result: Any, *arguments: Any) -> Any:
    """A function of Python's C interface; objects are int64, the addresses that they have."""
    numbers = {types.int64: ir.IntType(64), types.int32: ir.IntType(32), types.float64: ir.DoubleType()}

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(
            ir.VoidType() if result is types.void else numbers[result], [numbers[a] for a in arguments]
        )
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        called = builder.call(function, values)
        return context.get_dummy_value() if result is types.void else called

    if len(arguments) == 0:
        return intrinsic(lambda typing: (result(), generate))
    if len(arguments) == 1:
        return intrinsic(lambda typing, a: (result(*arguments), generate))
    if len(arguments) == 2:
        return intrinsic(lambda typing, a, b: (result(*arguments), generate))
    return intrinsic(lambda typing, a, b, c: (result(*arguments), generate))


_object, _int = types.int64, types.int32
_tuple_size = _function("PyTuple_Size", types.int64, _object)
_tuple_item = _function("PyTuple_GetItem", _object, _object, types.int64)
_new_tuple = _function("PyTuple_New", _object, types.int64)
_set_in_tuple = _function("PyTuple_SetItem", _int, _object, types.int64, _object)
_new_dict = _function("PyDict_New", _object)
_set_in_dict = _function("PyDict_SetItem", _int, _object, _object, _object)
_new_list = _function("PyList_New", _object, types.int64)
_set_in_list = _function("PyList_SetItem", _int, _object, types.int64, _object)
_type = _function("PyObject_Type", _object, _object)
_attribute = _function("PyObject_GetAttr", _object, _object, _object)
_iterator = _function("PyObject_GetIter", _object, _object)
_is_true = _function("PyObject_IsTrue", _int, _object)
_call = _function("PyObject_Call", _object, _object, _object, _object)
_keep = _function("Py_IncRef", types.void, _object)
_forget = _function("Py_DecRef", types.void, _object)
_clear_error = _function("PyErr_Clear", types.void)
_data_of_bytes = _function("PyBytes_AsString", types.int64, _object)
_size_of_bytes = _function("PyBytes_Size", types.int64, _object)
_data_of_str = _function("PyUnicode_AsUTF8AndSize", types.int64, _object, types.int64)
_data_of_bytearray = _function("PyByteArray_AsString", types.int64, _object)
_float = _function("PyFloat_FromDouble", _object, types.float64)
_integer = _function("PyLong_FromLongLong", _object, types.int64)
_bool = _function("PyBool_FromLong", _object, types.int64)
_copy = _function("memcpy", types.int64, types.int64, types.int64, types.int64)


@inlined
def _is_exactly(thing, kind):  # type: ignore[no-untyped-def]
    own = _type(thing)
    _forget(own)
    return own == kind


@inlined
def _text(context, thing, size):  # type: ignore[no-untyped-def]
    """Where the bytes of a str or bytes stand, and how many there are at `size`; 0 if it is something else."""
    if _is_exactly(thing, load_item(context, STR)):
        data = _data_of_str(thing, size)
        if data == 0:
            _clear_error()
        return data
    if _is_exactly(thing, load_item(context, BYTES)):
        store_i64(size, _size_of_bytes(thing))
        return _data_of_bytes(thing)
    return np.int64(0)


@inlined
def _state(context, thing):  # type: ignore[no-untyped-def]
    """Where the bytes of a state stand; 0 if it is none."""
    if not _is_exactly(thing, load_item(context, STATE)):
        return np.int64(0)
    data = _attribute(thing, load_item(context, NAME))
    if data == 0:
        _clear_error()
        return np.int64(0)
    address = _data_of_bytearray(data)
    _forget(data)
    return address


@inlined
def _triple(log10, length, unknown):  # type: ignore[no-untyped-def]
    """The tuple of Python, or 0 without memory."""
    made = _new_tuple(np.int64(3))
    if made != 0:
        _set_in_tuple(made, np.int64(0), _float(log10))
        _set_in_tuple(made, np.int64(1), _integer(length))
        _set_in_tuple(made, np.int64(2), _bool(np.int64(unknown)))
    return made


@helper
def _hand_over(self, arguments, given, keywords):  # type: ignore[no-untyped-def]
    """Let Python do it."""
    positional, named = _new_tuple(given), np.int64(0)
    if keywords != 0:
        named = _new_dict()
        for i in range(_tuple_size(keywords)):
            _set_in_dict(named, _tuple_item(keywords, i), load_item(arguments, given + i))
    for i in range(given):
        _keep(load_item(arguments, i))
        _set_in_tuple(positional, i, load_item(arguments, i))
    result = _call(_tuple_item(self, np.int64(1)), positional, named)
    _forget(positional)
    _forget(named)
    return result


def score_word(self, arguments, given, keywords):  # type: ignore[no-untyped-def]  # pragma: no cover
    """(state, word, state after) -> log10 p; or with the length of the n-gram, and whether the word is unknown."""
    context, size, before = _data_of_bytes(_tuple_item(self, np.int64(0))), scratch(8), scratch(64)
    if keywords == 0 and given == 3:
        own = _state(context, load_item(arguments, np.int64(0)))
        word = _text(context, load_item(arguments, np.int64(1)), size)
        after = _state(context, load_item(arguments, np.int64(2)))
        if own != 0 and word != 0 and after != 0:
            model, number = load_item(context, LAYOUT), load_item(context, NUMBER)
            if load_u32(own) == 0 or load_i64(own + OWNER) == number:
                if own == after:
                    _copy(before, own, np.int64(64))
                    own = before
                found = find_word(model, word_hash(word, np.int64(0), load_i64(size), np.bool_(False)))
                log10, length = step(model, own, found, after)
                store_i64(after + OWNER, number)
                if log10 < np.inf and load_item(context, WHOLE) == 0:
                    return _float(np.float64(log10))
                if log10 < np.inf:  # and not NaN, which damaged files have
                    return _triple(np.float64(log10), length, found == load_item(model, UNK))
    return _hand_over(self, arguments, given, keywords)


def score_sentence(self, arguments, given, keywords):  # type: ignore[no-untyped-def]  # pragma: no cover
    """(sentence[, bos[, eos]]) -> log10 p; or for each word what `score_word` gives."""
    context, size = _data_of_bytes(_tuple_item(self, np.int64(0))), scratch(8)
    text, tokens = scratch(4104), scratch(16400)
    if keywords == 0 and 1 <= given <= 3:
        data = _text(context, load_item(arguments, np.int64(0)), size)
        bos = np.int32(1) if given < 2 else _is_true(load_item(arguments, np.int64(1)))
        eos = np.int32(1) if given < 3 else _is_true(load_item(arguments, np.int64(2)))
        if data != 0 and load_i64(size) <= LONGEST and bos >= 0 and eos >= 0:
            length, whole = load_i64(size), load_item(context, WHOLE) != 0
            _copy(text, data, length)
            store_u64(text + length, 0x2020202020202020)
            log10, count = score_blocks(
                load_item(context, LAYOUT), text, length, NONE, np.bool_(False), bos != 0, eos != 0,
                np.int64(0), tokens if whole else np.int64(0),
            )  # fmt: skip
            if log10 < np.inf and not whole:
                return _float(np.float64(log10))
            if log10 < np.inf:
                made = _listed(tokens, count)
                if made == 0:
                    return made
                iterator = _iterator(made)
                _forget(made)
                return iterator
        if bos < 0 or eos < 0:
            _clear_error()
    return _hand_over(self, arguments, given, keywords)


@inlined
def _listed(tokens, count):  # type: ignore[no-untyped-def]
    made = _new_list(count)
    for i in range(count):
        if made != 0:
            at, bits = tokens + 8 * i, load_u32(tokens + 8 * i + 4)
            triple = _triple(np.float64(load_f32(at)), np.int64(bits & ~SIGN), bits >= SIGN)
            if triple == 0:
                _forget(made)
                made = np.int64(0)
            else:
                _set_in_list(made, np.int64(i), triple)
    return made


@functools.cache
def code_of(function: Callable[..., Any]) -> int:
    """The address of the code of `score_word` or `score_sentence`, compiled when it is asked for."""
    wait_for(_compile_sentences)
    signature = (types.int64,) * 4, types.int64
    compiled = CFunc(function, signature, locals={}, options={"error_model": "numpy"})
    compiled.enable_caching()
    mark_cache(compiled).compile()
    address: int = compiled.address  # type: ignore[assignment, unused-ignore]
    return address


def compile_ahead() -> None:
    """Begin to compile what scores sentences, while this process still loads the model."""
    compile_elsewhere(_compile_sentences, score_blocks)


def _compile_sentences() -> None:
    code_of(score_sentence)


class _Definition(ctypes.Structure):
    """PyMethodDef: what Python keeps of a built-in function."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("code", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_FASTCALL_AND_KEYWORDS = 0x82
_DEFINITIONS: dict[tuple[str, int], _Definition] = {}
"""Python refers to them without keeping them."""


def method(
    function: Callable[[Any, Any, Any, Any], Any],
    name: str,
    slow: Callable[..., Any],
    context: list[Any],
    *,
    whole: bool,
) -> Callable[..., Any]:
    """`score_word` or `score_sentence` as a built-in function.

    `context` is the address of a layout, the number of the model, the type of states, and whatever must be kept.
    """
    code = code_of(function)
    definition = _DEFINITIONS.setdefault((name, code), _Definition(name.encode(), code, _FASTCALL_AND_KEYWORDS, None))
    layout, number, state, *kept = context
    numbers = [layout, number, *map(id, (state, "_data", str, bytes)), whole]
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    own = (np.array(numbers, np.int64).tobytes(), slow, state, "_data", *kept)
    made: Callable[..., Any] = make(ctypes.addressof(definition), own, None)
    return made
