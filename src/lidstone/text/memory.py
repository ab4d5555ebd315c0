"""Memory by address, for compiled code: numbers of any width, aligned or not, little-endian as KenLM's files are.

Why addresses and not arrays: numba counts references to each array that a function is given, which costs more than
one step of a model, or one word of a text. Nothing here checks bounds. Who gives an address keeps its owner alive and
has checked that every offset stays inside.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

SIGN = np.uint32(0x80000000)
"""The sign bit of a float32; alone it is -0.0."""


@intrinsic
def address_of(typing: Any, array: Any) -> Any:
    """Where the first item of an array, or the first byte of bytes, stands."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), generate


def _loader(width: int, kind: Any) -> Any:
    def load(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.IntType(width).as_pointer())
            return builder.load(pointer, align=1)

        return kind(types.int64), generate

    return intrinsic(load)


load_u8 = _loader(8, types.uint8)
load_u32 = _loader(32, types.uint32)
load_u64 = _loader(64, types.uint64)
load_i64 = _loader(64, types.int64)


def _storer(width: int, kind: Any) -> Any:
    def store(typing: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            builder.store(arguments[1], builder.inttoptr(arguments[0], ir.IntType(width).as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, kind), generate

    return intrinsic(store)


store_u8 = _storer(8, types.uint8)
store_u32 = _storer(32, types.uint32)
store_u64 = _storer(64, types.uint64)


@intrinsic
def equal_u64(typing: Any, address: Any, key: Any) -> Any:
    """Which of the eight numbers of 64 bits from this address on are the key: one bit each, the lowest the first."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        eight, number = ir.VectorType(ir.IntType(64), 8), ir.IntType(32)
        numbers = builder.load(builder.inttoptr(arguments[0], eight.as_pointer()), align=8)
        one = builder.insert_element(ir.Constant(eight, ir.Undefined), arguments[1], number(0))
        keys = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(number, 8), [0] * 8))
        equal = builder.icmp_unsigned("==", numbers, keys)
        return builder.zext(builder.bitcast(equal, ir.IntType(8)), ir.IntType(64))

    return types.int64(types.int64, types.uint64), generate


@njit(cache=True, nogil=True, forceinline=True)
def as_float(bits: Any) -> Any:
    """The float32 with these bits."""
    return np.uint32(bits).view(np.float32)


@intrinsic
def prefetch(typing: Any, address: Any) -> Any:
    """Begin to bring the bytes at this address into the cache; a hint, without effect on any result."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _ask(context, builder, builder.inttoptr(arguments[0], ir.IntType(8).as_pointer()))

    return types.void(types.int64), generate


@intrinsic
def prefetch_item(typing: Any, array: Any, index: Any) -> Any:
    """`prefetch` of an item of an array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return _ask(context, builder, builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer()))

    return types.void(array, types.int64), generate


def _ask(context: Any, builder: Any, pointer: Any) -> Any:
    number = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
    call = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], kind)
    builder.call(call, [pointer, number(0), number(3), number(1)])  # to be read, to be kept, data
    return context.get_dummy_value()
