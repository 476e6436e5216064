"""Counts the instructions of a cubin: how many a kernel has, and which widths of global loads and stores.

SASS from Volta to Hopper has 128 bits an instruction: the opcode in bits 0 to 11, the width of a memory access in bits 73
to 75 (as in Mesa's compiler for it, NAK, `sm70_encode.rs`).
"""

from __future__ import annotations

import struct
from collections import Counter

_OPCODES = {
    0x381: "LDG",
    0x981: "LDG",
    0x386: "STG",
    0x986: "STG",
    0x983: "LDL",
    0x387: "STL",
    0x984: "LDS",
    0x388: "STS",
    0x23E: "F2FP",
    0x43E: "F2FP",
    0x63E: "F2FP",
    0x223: "FFMA",
    0x423: "FFMA",
    0x823: "FFMA",
    0x308: "MUFU",
    0x304: "F2F",
    0xB1D: "BAR",
}
_NOP = 0x918
_WIDTHS = {0: 8, 1: 8, 2: 16, 3: 16, 4: 32, 5: 64, 6: 128}
_INSTRUCTION = 16


def memory_instructions(cubin: bytes) -> dict[str, Counter[str]]:
    """By kernel: how often it has `LDG.128`, `STG.32` and the like, and `F2FP`, the conversion of two floats at once."""
    found: dict[str, Counter[str]] = {}
    for name, code in _kernel_sections(cubin):
        counts: Counter[str] = Counter()
        for place in range(0, len(code) - _INSTRUCTION + 1, _INSTRUCTION):
            low, high = struct.unpack_from("<QQ", code, place)
            mnemonic = _OPCODES.get(low & 0xFFF)
            if mnemonic == "F2FP":
                counts[mnemonic] += 1
            elif mnemonic is not None:
                counts[f"{mnemonic}.{_WIDTHS.get(high >> 9 & 7, '?')}"] += 1
        found[name] = counts
    return found


def instructions(cubin: bytes) -> dict[str, list[tuple[str, int]]]:
    """By kernel: all of its instructions but those that fill up the end, by name where it is known, with bits moved."""
    found: dict[str, list[tuple[str, int]]] = {}
    for name, code in _kernel_sections(cubin):
        words = [struct.unpack_from("<QQ", code, at) for at in range(0, len(code) - _INSTRUCTION + 1, _INSTRUCTION)]
        found[name] = [
            (_OPCODES.get(low & 0xFFF, ""), _WIDTHS.get(high >> 9 & 7, 0)) for low, high in words if low & 0xFFF != _NOP
        ]
    return found


def _kernel_sections(cubin: bytes) -> list[tuple[str, bytes]]:
    """The `.text.NAME` sections of the ELF file."""
    start, size, count, names = *struct.unpack_from("<Q", cubin, 0x28), *struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, start + size * number) for number in range(count)]
    strings = headers[names][4]
    sections: list[tuple[str, bytes]] = []
    for header in headers:
        first = strings + header[0]
        name = cubin[first : cubin.index(b"\0", first)].decode()
        if name.startswith(".text."):
            sections.append((name.removeprefix(".text."), cubin[header[4] : header[4] + header[5]]))
    return sections
