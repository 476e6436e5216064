"""The way through machine code that benchmarks/gpu_table.py counts."""

from __future__ import annotations

from gpu_sass import ways

LISTING = """
\t\tFunction : divide
        /*0000*/                   LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;   /* 0x1 */
        /*0010*/                   FCHK P0, R4, R5 ;   /* 0x1 */
        /*0020*/              @!P0 BRA 0x50 ;   /* 0x1 */
        /*0030*/                   MOV R2, 0x50 ;   /* 0x1 */
        /*0040*/                   CALL.REL.NOINC 0x70 ;   /* 0x1 */
        /*0050*/                   STG.E.128 desc[UR4][R2.64], R4 ;   /* 0x1 */
        /*0060*/                   EXIT ;   /* 0x1 */
        /*0070*/                   MUFU.RCP R0, R4 ;   /* 0x1 */
        /*0080*/                   RET.REL.NODEC R2 0x0 ;   /* 0x1 */
\t\tFunction : last_block
        /*0000*/               @P0 BRA 0x40 ;   /* 0x1 */
        /*0010*/                   LDG.E.128 R4, desc[UR4][R2.64] ;   /* 0x1 */
        /*0020*/                   STG.E.128 desc[UR4][R2.64], R4 ;   /* 0x1 */
        /*0030*/                   EXIT ;   /* 0x1 */
        /*0040*/                   LDG.E R4, desc[UR4][R2.64] ;   /* 0x1 */
        /*0050*/                   STG.E desc[UR4][R2.64], R4 ;   /* 0x1 */
        /*0060*/                   EXIT ;   /* 0x1 */
\t\tFunction : loops
        /*0000*/                   LDG.E R4, desc[UR4][R2.64] ;   /* 0x1 */
        /*0010*/               @P1 BRA 0x0 ;   /* 0x1 */
        /*0020*/                   LDG.E.128 R4, desc[UR4][R2.64] ;   /* 0x1 */
        /*0030*/                   BRA P2, 0x20 ;   /* 0x1 */
        /*0040*/                   SHFL.BFLY PT, R0, R4, 0x1, 0x1f ;   /* 0x1 */
        /*0050*/                   LDG.E.U16 R4, desc[UR4][R2.64] ;   /* 0x1 */
        /*0060*/               @P1 BRA 0x50 ;   /* 0x1 */
        /*0070*/                   EXIT ;   /* 0x1 */
"""


def test_way_of_a_thread() -> None:
    found = ways(LISTING)
    assert [found["divide"].code[k].kind for k in sorted(found["divide"].taken)] == [
        "LDG",
        "FCHK",
        "BRA",
        "STG",
        "EXIT",
    ]
    assert sorted(found["last_block"].taken) == [0, 1, 2, 3]
    assert (found["divide"].moved("LDG"), found["last_block"].before_waiting()) == (16, 16)


def test_what_unrolling_leaves_is_no_loop_of_its_own() -> None:
    loops = ways(LISTING)["loops"].loops
    assert [(loop.first, loop.last, loop.rest) for loop in loops] == [(0, 1, True), (2, 3, False), (5, 6, False)]
