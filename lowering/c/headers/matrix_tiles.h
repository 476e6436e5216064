/* Matrix registers of processors. */

/* fo_matrix_tiles: whether this process may use those of Intel AMX. Linux lets a process have them once it asked (arch_prctl with
   ARCH_REQ_XCOMP_PERM for XTILEDATA), as their contents are 8 KB of each of its threads. */
FO_FN int fo_matrix_tiles(void) {
#if defined(__AMX_TILE__) && defined(__x86_64__) && defined(__linux__)
  static int state;
  int known = __atomic_load_n(&state, __ATOMIC_RELAXED);
  if (known == 0) {
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(158L), "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory");
    known = answer == 0 ? 1 : -1;
    __atomic_store_n(&state, known, __ATOMIC_RELAXED);
  }
  return known > 0;
#else
  return 0;
#endif
}

/* fo_matrix_line: 64 bytes become the first n groups of four that lie at `from`, 16 at most, and zeros behind these. */
FO_FN void fo_matrix_line(const void *from, long n, fo_u32 *to) {
#if defined(__AVX512F__)
  typedef fo_u32 __attribute__((vector_size(64), may_alias)) line;
  line x;
  const unsigned short mask = n < 16 ? (1u << n) - 1 : 0xffff;
  __asm__("vmovdqu32 %1, %0%{%2%}%{z%}" : "=v"(x) : "m"(*(const char(*)[64])from), "Yk"(mask));
  *(line *)to = x;
#else
  for (long p = 0; p < 16; p++) to[p] = 0;
  __builtin_memcpy(to, from, n < 16 ? 4 * n : 64);
#endif
}
