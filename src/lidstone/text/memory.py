"""Memory by address, for compiled code: numbers of any width, aligned or not, little-endian as KenLM's files are.

Why addresses and not arrays: numba counts references to each array that a function is given, which costs more than
one step of a model, or one word of a text. Nothing here checks bounds. Who gives an address keeps its owner alive and
has checked that every offset stays inside.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

SIGN = np.uint32(0x80000000)
"""The sign bit of a float32; alone it is -0.0."""


def address_of_bytes(data: bytes) -> int:
    """Where the first byte stands, for a call of compiled code; the bytes must stay alive."""
    return np.frombuffer(data, np.uint8).ctypes.data


@intrinsic
def address_of(typing: Any, array: Any) -> Any:
    """Where the first item of an array, or the first byte of bytes, stands."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), generate


def _loader(kind: Any, number: Any) -> Any:
    def load(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.load(builder.inttoptr(arguments[0], number.as_pointer()), align=1)

        return kind(types.int64), generate

    return intrinsic(load)


load_u8 = _loader(types.uint8, ir.IntType(8))
load_u32 = _loader(types.uint32, ir.IntType(32))
load_u64 = _loader(types.uint64, ir.IntType(64))
load_i64 = _loader(types.int64, ir.IntType(64))
load_f32 = _loader(types.float32, ir.FloatType())


def _storer(kind: Any, number: Any) -> Any:
    def store(typing: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            builder.store(arguments[1], builder.inttoptr(arguments[0], number.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, kind), generate

    return intrinsic(store)


store_u8 = _storer(types.uint8, ir.IntType(8))
store_u32 = _storer(types.uint32, ir.IntType(32))
store_u64 = _storer(types.uint64, ir.IntType(64))
store_i64 = _storer(types.int64, ir.IntType(64))
store_f32 = _storer(types.float32, ir.FloatType())
store_f64 = _storer(types.float64, ir.DoubleType())


def _item_loader(kind: Any, number: Any) -> Any:
    def load(typing: Any, array: Any, place: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            first = builder.inttoptr(arguments[0], number.as_pointer())
            return builder.load(builder.gep(first, arguments[1:]))

        return kind(types.int64, types.int64), generate

    return intrinsic(load)


load_item = _item_loader(types.int64, ir.IntType(64))
"""array[place] of an array given by address; loops over these are compiled to instructions for many numbers at once."""
load_item_u32 = _item_loader(types.uint32, ir.IntType(32))
load_item_f32 = _item_loader(types.float32, ir.FloatType())


@intrinsic
def store_item_f32(typing: Any, array: Any, place: Any, value: Any) -> Any:
    """array[place] = value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = builder.inttoptr(arguments[0], ir.FloatType().as_pointer())
        builder.store(arguments[2], builder.gep(first, [arguments[1]]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32), generate


@intrinsic
def scratch(typing: Any, size: Any) -> Any:
    """The address of so many bytes, a constant, on the stack of the function: not cleared, and gone when it returns."""
    if not isinstance(size, types.IntegerLiteral):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        with builder.goto_entry_block():  # not numba's alloca_once, which clears the room byte by byte
            room = builder.alloca(ir.ArrayType(ir.IntType(8), size.literal_value))
        room.align = 64
        return builder.ptrtoint(room, ir.IntType(64))

    return types.int64(size), generate


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


@intrinsic
def as_float(typing: Any, bits: Any) -> Any:
    """The float32 with these bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.uint32), generate


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
