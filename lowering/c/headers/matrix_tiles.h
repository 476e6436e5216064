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

/* fo_matrix_extents: sets the registers up, where *now does not say that they are: for 16 groups of each of `rows` rows times as many
   rows of `columns` columns, twice, or once and for `rest` groups where these are left over. That clears them all, and waits for
   stores: once a task, if it can be. */
FO_FN void fo_matrix_extents(long *now, long rows, long columns, long rest) {
#if defined(__AMX_TILE__)
  const long wanted = rows | columns << 8 | rest << 16;
  if (*now == wanted) return;
  struct { unsigned char palette, from, unused[14]; unsigned short bytes[16]; unsigned char rows[16]; } extents;
  __builtin_memset(&extents, 0, sizeof extents);
  extents.palette = 1;
  for (int i = 0; i < 4; i++) extents.rows[i] = rows, extents.bytes[i] = 4 * columns;
  const long last = rest ? rest : 16;
  extents.rows[4] = extents.rows[5] = rows, extents.bytes[4] = 64, extents.bytes[5] = 4 * last;
  extents.rows[6] = 16, extents.rows[7] = last, extents.bytes[6] = extents.bytes[7] = 4 * columns;
  __asm__ volatile("ldtilecfg %0" : : "m"(extents));
  *now = wanted;
#else
  (void)now, (void)rows, (void)columns, (void)rest;
#endif
}

/* fo_matrix_begin: what fo_matrix_extents is to know before a thread's first tile. */
FO_FN void fo_matrix_begin(long *now) {
  *now = 0;
}

/* fo_matrix_end: gives the registers back after its last one, where they are set up. */
FO_FN void fo_matrix_end(const long *now) {
#if defined(__AMX_TILE__)
  if (*now) __asm__ volatile("tilerelease");
#else
  (void)now;
#endif
}
