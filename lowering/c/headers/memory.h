/* Moves of memory: transposes in vector registers, nontemporal stores, prefetches. */

/* fo_bits: the same number, which the compiler does not know any more. */
FO_FN long fo_bits(long bits) {
  __asm__("" : "+r"(bits));
  return bits;
}

/* fo_repeated_place: where the last vector of a loop begins whose iterations may run twice, behind `whole` of them: there, or
   `missing` before, with which it is a whole one, on machines that store whole vectors much faster than masked ones. */
FO_FN long fo_repeated_place(long whole, long missing) {
#if defined(__AVX512F__) || defined(__ARM_FEATURE_SVE)
  (void)missing;
  return whole;
#else
  return whole - missing;
#endif
}

/* fo_earlier_place: the same of `count` elements, which may be fewer than the vector has. */
FO_FN long fo_earlier_place(long whole, long count) {
#if defined(__AVX512F__) || defined(__ARM_FEATURE_SVE)
  (void)count;
  return whole;
#else
  return count < 16 ? whole : count - 16;
#endif
}

/* fo_before_register_f32: how many elements lie before the first one that begins a register of 32 bytes, from to[at] on. */
FO_FN long fo_before_register_f32(const float *to, long at) {
  return (long)(-(fo_u64)(to + at) & 31) / 4;
}

/* fo_repeated_bits: the mask of its lanes: `bits`, which the compiler does not know any more, or all. */
FO_FN long fo_repeated_bits(long bits) {
#if defined(__AVX512F__) || defined(__ARM_FEATURE_SVE)
  return fo_bits(bits);
#else
  (void)bits;
  return -1;
#endif
}

/* fo_stored_bits: of lanes that store, those that do it by a mask: all of them, or none, which `fo_last_f32` stores. */
FO_FN long fo_stored_bits(long bits) {
#if defined(__AVX512F__) || defined(__ARM_FEATURE_SVE)
  return bits;
#else
  (void)bits;
  return 0;
#endif
}

/* fo_last_f32: so many elements, 16 at most, from to[at] on become those of `from`, where no mask stores them. */
FO_FN void fo_last_f32(const float *from, float *to, long at, long count) {
#if defined(__AVX512F__) || defined(__ARM_FEATURE_SVE)
  (void)from, (void)to, (void)at, (void)count;
#else
  typedef float fo_8 __attribute__((vector_size(32), aligned(4), may_alias));
  typedef float fo_4 __attribute__((vector_size(16), aligned(4), may_alias));
  to += at;
  if (count & 16) {
    *(fo_8 *)to = *(const fo_8 *)from, *(fo_8 *)(to + 8) = *(const fo_8 *)(from + 8);
    return;
  }
  if (count & 8) {
    *(fo_8 *)to = *(const fo_8 *)from;
    from += 8, to += 8;
  }
  if (count & 4) {
    *(fo_4 *)to = *(const fo_4 *)from;
    from += 4, to += 4;
  }
  if (count & 2) {
    to[0] = from[0], to[1] = from[1];
    from += 2, to += 2;
  }
  if (count & 1) to[0] = from[0];
#endif
}

/* fo_pair_f32: two neighbours as one number, the first one in its lower half: vectors of them are one load. */
FO_FN fo_i64 fo_pair_f32(const float *from, long at) {
  fo_u64 pair;
  __builtin_memcpy(&pair, from + at, sizeof pair);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  pair = pair << 32 | pair >> 32;
#endif
  return (fo_i64)pair;
}

/* fo_zero_{f32|f64}: zero, which the compiler does not know. */
FO_FN float fo_zero_f32(void) {
  return fo_from_bits_f32((fo_{u32|u64})fo_bits(0));
}

/* fo_rows_{f32|f64}: for each of so many channels, which lie `channel` and `to_channel` elements apart, rows `begin` to `end` from
   to[to_at] on, `count` elements apart and so long: of each, elements `first` to `last` are every `step`-th one of the row of `from`,
   whose element 0 of row 0 would be from[at] and whose rows lie `row` apart; others are 0, as are all elements before and behind
   these rows, to the one `stop`. Elements behind that one stay as they are if `stop` is a vector behind the rows, at least; or else
   some, fewer than a vector has, may become 0, too. */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((noclone)) /* for the numbers of a call it takes as long to compile as all else */
#endif
FO_APART void fo_rows_f32(const float *restrict from, long at, long row, long step, long first, long last,
    float *restrict to, long to_at, long count, long begin, long end, long stop, long channels, long channel, long to_channel) {
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
  enum { lanes = 64 / sizeof *to };
  typedef float fo_r __attribute__((vector_size(64)));
  typedef float fo_row __attribute__((vector_size(64), aligned(4), may_alias));
  typedef {unsigned short|unsigned char} fo_mask;
  for (long n = 0; n < channels; n++, at += channel, to_at += to_channel) {
    for (long i = 0; i < begin * count; i += lanes) *(fo_row *)(to + to_at + i) = (fo_row){0};
    /* Vectors of all rows side by side, the last one first: what it writes behind its row is the beginning of the next one. */
    for (long k = step < 3 ? (count - 1) / lanes * lanes : -1; k >= 0; k -= lanes) {
      long low = (first - k) * step, high = (last - k) * step - step + 1, all = lanes * step;
      low = low < 0 ? 0 : low > all ? all : low, high = high < low ? low : high > all ? all : high;
      const fo_u64 bits = (1ul << high) - (1ul << low);
      const fo_mask met = (fo_mask)bits, others = (fo_mask)(bits >> lanes);
      const float *restrict q = from + at + k * step + begin * row;
      float *restrict c = to + to_at + k + begin * count;
      if (step == 1) {
        for (long r = begin; r < end; r++, q += row, c += count)
          *(fo_row *)c = {__builtin_ia32_loadups512_mask|__builtin_ia32_loadupd512_mask}(q, (fo_r){0}, met);
        continue;
      }
      for (long r = begin; r < end; r++, q += row, c += count) {
        fo_r one = {__builtin_ia32_loadups512_mask|__builtin_ia32_loadupd512_mask}(q, (fo_r){0}, met);
        fo_r two = {__builtin_ia32_loadups512_mask|__builtin_ia32_loadupd512_mask}(q + lanes, (fo_r){0}, others);
        *(fo_row *)c = __builtin_shufflevector(one, two, {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30|0, 2, 4, 6, 8, 10, 12, 14});
      }
    }
    for (long r = begin; step >= 3 && r < end; r++) {
      const float *restrict a = from + at + r * row;
      float *restrict c = to + to_at + r * count;
      for (long i = 0; i < count; i++) {
        c[i] = i < first || i >= last ? 0.0f : a[i * step];
        __asm__("" : "+r"(i)); /* one by one: what is as rare is not worth the time that compilers take for vectors of it */
      }
    }
    /* Not one element more: what lies there is another part of a row, which may be written already. */
    long i = end * count;
    for (; i + lanes <= stop; i += lanes) *(fo_row *)(to + to_at + i) = (fo_row){0};
    if (i < stop && stop - end * count >= lanes) *(fo_row *)(to + to_at + stop - lanes) = (fo_row){0};
    for (; i < stop && stop - end * count < lanes; i++) to[to_at + i] = 0.0f;
  }
#elif defined(__AVX2__) && defined(__GNUC__) && !defined(__clang__)
  enum { lanes = 32 / sizeof *to };
  typedef float fo_r __attribute__((vector_size(32)));
  typedef double fo_pairs __attribute__((vector_size(32)));
  typedef float fo_row __attribute__((vector_size(32), aligned(4), may_alias));
  typedef {int|long long} fo_mask __attribute__((vector_size(32)));
  const fo_mask lane = { {0, 1, 2, 3, 4, 5, 6, 7|0, 1, 2, 3} };
  for (long n = 0; n < channels; n++, at += channel, to_at += to_channel) {
    for (long i = 0; i < begin * count; i += lanes) *(fo_row *)(to + to_at + i) = (fo_row){0};
    /* Vectors of all rows side by side, the last one first: what it writes behind its row is the beginning of the next one. */
    for (long k = step < 3 ? (count - 1) / lanes * lanes : -1; k >= 0; k -= lanes) {
      const {int|long long} low = ({int|long long})((first - k) * step), high = ({int|long long})((last - k) * step - step);
      const fo_mask met = (lane >= low) & (lane <= high), others = (lane + lanes >= low) & (lane + lanes <= high);
      const float *restrict q = from + at + k * step + begin * row;
      float *restrict c = to + to_at + k + begin * count;
      if (step == 1) {
        for (long r = begin; r < end; r++, q += row, c += count) *(fo_row *)c = __builtin_ia32_maskload{ps|pd}256((const fo_r *)q, met);
        continue;
      }
      for (long r = begin; r < end; r++, q += row, c += count) {
        fo_r one = __builtin_ia32_maskload{ps|pd}256((const fo_r *)q, met);
        fo_r two = __builtin_ia32_maskload{ps|pd}256((const fo_r *)(q + lanes), others);
        fo_pairs halves = (fo_pairs)__builtin_shufflevector(one, two, {0, 2, 8, 10, 4, 6, 12, 14|0, 4, 2, 6});
        *(fo_row *)c = (fo_r)__builtin_shufflevector(halves, halves, 0, 2, 1, 3);
      }
    }
    for (long r = begin; step >= 3 && r < end; r++) {
      const float *restrict a = from + at + r * row;
      float *restrict c = to + to_at + r * count;
      for (long i = 0; i < count; i++) {
        c[i] = i < first || i >= last ? 0.0f : a[i * step];
        __asm__("" : "+r"(i)); /* one by one, as above */
      }
    }
    /* Not one element more: what lies there is another part of a row, which may be written already. */
    long i = end * count;
    for (; i + lanes <= stop; i += lanes) *(fo_row *)(to + to_at + i) = (fo_row){0};
    if (i < stop && stop - end * count >= lanes) *(fo_row *)(to + to_at + stop - lanes) = (fo_row){0};
    for (; i < stop && stop - end * count < lanes; i++) to[to_at + i] = 0.0f;
  }
#else
  for (long n = 0; n < channels; n++, at += channel, to_at += to_channel) {
    for (long i = 0; i < begin * count; i++) to[to_at + i] = 0.0f;
    for (long r = begin; r < end; r++) {
      const float *restrict a = from + at + r * row;
      float *restrict c = to + to_at + r * count;
      for (long i = 0; i < first; i++) c[i] = 0.0f;
      for (long i = first; i < last; i++) c[i] = a[i * step];
      for (long i = last; i < count; i++) c[i] = 0.0f;
    }
    for (long i = end * count; i < stop; i++) to[to_at + i] = 0.0f;
  }
#endif
}

/* fo_transpose_halves_u32: the tile of 16 x 16 elements of fo_transpose_tile_u32 by blocks of 8 x 8, for machines whose vectors are
   half a cache line: of longer ones gcc makes memory there, and half the speed. */
FO_FN void fo_transpose_halves_u32(const fo_u32 *from, long step, fo_u32 *to, long to_step) {
#if defined(__AVX__) && __GNUC__ >= 12
  typedef fo_u32 part __attribute__((vector_size(16), aligned(4), may_alias));
  typedef fo_u32 row __attribute__((vector_size(32)));
  typedef fo_u32 kept __attribute__((vector_size(32), aligned(4), may_alias));
  for (int block = 0; block < 4; block++) {
    const fo_u32 *source = from + block / 2 * 8 * step + block % 2 * 8;
    fo_u32 *target = to + block % 2 * 8 * to_step + block / 2 * 8;
    for (int k = 0; k < 8; k += 4) {
      row a[4], b[4];
      for (int i = 0; i < 4; i++) {
        part low = *(const part *)(source + i * step + k), high = *(const part *)(source + (i + 4) * step + k);
        a[i] = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
      }
      for (int i = 0; i < 4; i += 2) {
        b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
      }
      for (int i = 0; i < 2; i++) {
        *(kept *)(target + (k + 2 * i) * to_step) = __builtin_shufflevector(b[i], b[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        *(kept *)(target + (k + 2 * i + 1) * to_step) = __builtin_shufflevector(b[i], b[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
      }
    }
  }
#else
  (void)from, (void)step, (void)to, (void)to_step;
#endif
}

/* fo_transpose_halves_u64: the same for fo_transpose_tile_u64, by blocks of 4 x 4. */
FO_FN void fo_transpose_halves_u64(const fo_u64 *from, long step, fo_u64 *to, long to_step) {
#if defined(__AVX__) && __GNUC__ >= 12
  typedef fo_u64 part __attribute__((vector_size(16), aligned(8), may_alias));
  typedef fo_u64 row __attribute__((vector_size(32)));
  typedef fo_u64 kept __attribute__((vector_size(32), aligned(8), may_alias));
  for (int block = 0; block < 4; block++) {
    const fo_u64 *source = from + block / 2 * 4 * step + block % 2 * 4;
    fo_u64 *target = to + block % 2 * 4 * to_step + block / 2 * 4;
    for (int k = 0; k < 4; k += 2) {
      row a[2];
      for (int i = 0; i < 2; i++) {
        part low = *(const part *)(source + i * step + k), high = *(const part *)(source + (i + 2) * step + k);
        a[i] = __builtin_shufflevector(low, high, 0, 1, 2, 3);
      }
      *(kept *)(target + k * to_step) = __builtin_shufflevector(a[0], a[1], 0, 4, 2, 6);
      *(kept *)(target + (k + 1) * to_step) = __builtin_shufflevector(a[0], a[1], 1, 5, 3, 7);
    }
  }
#else
  (void)from, (void)step, (void)to, (void)to_step;
#endif
}

/* fo_transpose_halves_u16: the same for fo_transpose_tile_u16, eight columns at a time, which is what sixteen registers hold. */
FO_FN void fo_transpose_halves_u16(const unsigned short *from, long step, unsigned short *to, long to_step) {
#if defined(__AVX__) && __GNUC__ >= 12
  typedef unsigned short part __attribute__((vector_size(16), aligned(2), may_alias));
  typedef unsigned short row __attribute__((vector_size(32)));
  typedef fo_u32 pairs __attribute__((vector_size(32)));
  typedef fo_u64 fours __attribute__((vector_size(32)));
  typedef fo_u64 kept __attribute__((vector_size(32), aligned(2), may_alias));
  for (int k = 0; k < 16; k += 8) {
    row a[8], b[8];
    for (int i = 0; i < 8; i++) {
      part low = *(const part *)(from + i * step + k), high = *(const part *)(from + (i + 8) * step + k);
      a[i] = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }
    for (int i = 0; i < 8; i += 2) {
      b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27);
      b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    for (int i = 0; i < 8; i += i % 2 ? 3 : 1) {
      a[i / 4 * 4 + i % 2 * 2] = (row)__builtin_shufflevector((pairs)b[i], (pairs)b[i + 2], 0, 8, 1, 9, 4, 12, 5, 13);
      a[i / 4 * 4 + i % 2 * 2 + 1] = (row)__builtin_shufflevector((pairs)b[i], (pairs)b[i + 2], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 4; i++) {
      *(kept *)(to + (k + 2 * i) * to_step) = __builtin_shufflevector((fours)a[i], (fours)a[i + 4], 0, 4, 2, 6);
      *(kept *)(to + (k + 2 * i + 1) * to_step) = __builtin_shufflevector((fours)a[i], (fours)a[i + 4], 1, 5, 3, 7);
    }
  }
#else
  (void)from, (void)step, (void)to, (void)to_step;
#endif
}

/* fo_transpose_tile_{u8|u32}: a tile of 16 x 16 elements, transposed in registers; its rows are `step` apart, then `to_step`. */
FO_FN void fo_transpose_tile_u8(const void *from, long step, void *to, long to_step) {
  typedef {unsigned char|fo_u32} element;
  const element *source = from;
  element *target = to;
#if {0|defined(__AVX__) && !defined(__AVX512F__) && __GNUC__ >= 12}
  {(void)0|fo_transpose_halves_u32(source, step, target, to_step)};
#elif defined(__clang__) || __GNUC__ >= 12
  typedef element line __attribute__((vector_size({16|64})));
  line a[16], b[16];
  for (int i = 0; i < 16; i++) __builtin_memcpy(&a[i], source + i * step, sizeof a[i]);
  for (int i = 0; i < 8; i++) {
    b[i] = __builtin_shufflevector(a[i], a[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    b[i + 8] = __builtin_shufflevector(a[i], a[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
  for (int i = 0; i < 16; i++) {
    if (i & 4) continue;
    a[i] = __builtin_shufflevector(b[i], b[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
    a[i + 4] = __builtin_shufflevector(b[i], b[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
  }
  for (int i = 0; i < 16; i++) {
    if (i & 2) continue;
    b[i] = __builtin_shufflevector(a[i], a[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
    b[i + 2] = __builtin_shufflevector(a[i], a[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  }
  for (int i = 0; i < 16; i++) {
    if (i & 1) continue;
    a[i] = __builtin_shufflevector(b[i], b[i + 1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
    a[i + 1] = __builtin_shufflevector(b[i], b[i + 1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
  }
  for (int i = 0; i < 16; i++) __builtin_memcpy(target + i * to_step, &a[i], sizeof a[i]);
#else
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) target[j * to_step + i] = source[i * step + j];
#endif
}

/* fo_transpose_tile_u16: the same of elements of 16 bits: halves of lines change places, then neighbours are interleaved within
   them, which is one step for elements, pairs and fours, where any other order of elements of 16 bits takes three. */
FO_FN void fo_transpose_tile_u16(const void *from, long step, void *to, long to_step) {
  const unsigned short *source = from;
  unsigned short *target = to;
#if defined(__AVX__) && !defined(__AVX512F__) && __GNUC__ >= 12
  fo_transpose_halves_u16(source, step, target, to_step);
#elif defined(__clang__) || __GNUC__ >= 12
  typedef unsigned short line __attribute__((vector_size(32)));
  typedef fo_u32 pairs __attribute__((vector_size(32)));
  typedef fo_u64 fours __attribute__((vector_size(32)));
  line a[16], b[16];
  for (int i = 0; i < 16; i++) __builtin_memcpy(&a[i], source + i * step, sizeof a[i]);
  for (int i = 0; i < 8; i++) {
    b[i] = __builtin_shufflevector(a[i], a[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    b[i + 8] = __builtin_shufflevector(a[i], a[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
  for (int i = 0; i < 16; i += 2) {
    a[i] = __builtin_shufflevector(b[i], b[i + 1], 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27);
    a[i + 1] = __builtin_shufflevector(b[i], b[i + 1], 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31);
  }
  for (int i = 0; i < 16; i++) {
    if (i & 2) continue;
    b[i / 4 * 4 + i % 2 * 2] = (line)__builtin_shufflevector((pairs)a[i], (pairs)a[i + 2], 0, 8, 1, 9, 4, 12, 5, 13);
    b[i / 4 * 4 + i % 2 * 2 + 1] = (line)__builtin_shufflevector((pairs)a[i], (pairs)a[i + 2], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 16; i++) {
    if (i & 4) continue;
    a[i / 8 * 8 + i % 4 * 2] = (line)__builtin_shufflevector((fours)b[i], (fours)b[i + 4], 0, 4, 2, 6);
    a[i / 8 * 8 + i % 4 * 2 + 1] = (line)__builtin_shufflevector((fours)b[i], (fours)b[i + 4], 1, 5, 3, 7);
  }
  for (int i = 0; i < 16; i++) __builtin_memcpy(target + i * to_step, &a[i], sizeof a[i]);
#else
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) target[j * to_step + i] = source[i * step + j];
#endif
}

/* fo_transpose_tile_u64: a tile of 8 x 8 elements, transposed in registers; its rows are `step` apart, then `to_step`. */
FO_FN void fo_transpose_tile_u64(const void *from, long step, void *to, long to_step) {
  typedef fo_u64 element;
  const element *source = from;
  element *target = to;
#if defined(__AVX__) && !defined(__AVX512F__) && __GNUC__ >= 12
  fo_transpose_halves_u64(source, step, target, to_step);
#elif defined(__clang__) || __GNUC__ >= 12
  typedef element line __attribute__((vector_size(64)));
  line a[8], b[8];
  for (int i = 0; i < 8; i++) __builtin_memcpy(&a[i], source + i * step, sizeof a[i]);
  for (int i = 0; i < 4; i++) {
    b[i] = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    b[i + 4] = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int i = 0; i < 8; i++) {
    if (i & 2) continue;
    a[i] = __builtin_shufflevector(b[i], b[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    a[i + 2] = __builtin_shufflevector(b[i], b[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  for (int i = 0; i < 8; i++) {
    if (i & 1) continue;
    b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int i = 0; i < 8; i++) __builtin_memcpy(target + i * to_step, &b[i], sizeof b[i]);
#else
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 8; j++) target[j * to_step + i] = source[i * step + j];
#endif
}

/* fo_transpose_{ELEMENT}: the tile from from[at] on, with rows `step` apart, becomes the transposed one from to[to_at] on,
   with rows `to_step` apart. */
FO_FN void fo_transpose_{ELEMENT}(const {ELEMENT_C} *from, long at, long step, {ELEMENT_C} *to, long to_at, long to_step) {
  fo_transpose_tile_u{ELEMENT_BITS}(from + at, step, to + to_at, to_step);
}

/* fo_transpose_beside_{ELEMENT}: the same, and what lies behind the tile's last row is asked for, as a product that copies panels
   of a transposed operand reads it next. Compilers take their time of it, so it is there once. */
FO_APART void fo_transpose_beside_{ELEMENT}(const {ELEMENT_C} *from, long at, long step, {ELEMENT_C} *to, long to_at, long to_step) {
  enum { side = sizeof *from > 4 ? 8 : 16 };
  for (int i = side; i < 2 * side; i++) __builtin_prefetch(from + at + i * step);
  fo_transpose_tile_u{ELEMENT_BITS}(from + at, step, to + to_at, to_step);
}

/* fo_transpose_widened_{f16|bf16}: the same for a tile of narrow floats, which becomes one of f32. */
FO_FN void fo_transpose_widened_f16(const unsigned short *from, long at, long step, float *to, long to_at, long to_step) {
  unsigned short turned[256] __attribute__((aligned(64)));
  for (int i = 16; i < 32; i++) __builtin_prefetch(from + at + i * step);
  fo_transpose_tile_u16(from + at, step, turned, 16);
  for (int i = 0; i < 16; i++)
    {fo_widen_f16(turned, i * 16, to, to_at + i * to_step, 16)|for (int j = 0; j < 16; j++) to[to_at + i * to_step + j] = fo_bf16_to_f32(turned[i * 16 + j])};
}

/* fo_transpose_offset_{ELEMENT}: how many elements from[at] lies behind the start of its cache line of 64 bytes. */
FO_FN long fo_transpose_offset_{ELEMENT}(const {ELEMENT_C} *from, long at) {
  return (long)((__UINTPTR_TYPE__)(from + at) % 64 / sizeof *from);
}

/* fo_turn_of_table: whether a task of `count` elements looks them up in a table of 65536 numbers that lasts (2), makes it before
   (1), or does neither (0), as so many were not computed yet, or another thread makes it; `made` says what it is by then, and how
   many were. A processor that takes small numbers for zero makes none, as others would not. */
FO_FN long fo_turn_of_table(long *made, long count) {
  long state = __atomic_load_n(made, __ATOMIC_ACQUIRE);
  if (state) return state == 2 ? 2 : 0;
  volatile float least = 0x1p-126f;
  if (__atomic_add_fetch(made + 1, count, __ATOMIC_RELAXED) < 65536 || least * 0.5f == 0.0f) return 0;
  return __atomic_compare_exchange_n(made, &state, 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* fo_table_is_made: from here on all tasks look up. */
FO_FN void fo_table_is_made(long *made) {
  __atomic_store_n(made, 2, __ATOMIC_RELEASE);
}

/* fo_every_{f16|bf16}: each number of the type at the place that its bits are. */
FO_FN void fo_every_f16(unsigned short *table) {
  for (int k = 0; k < 65536; k++) table[k] = (unsigned short)k;
}

/* fo_look_up_{f16|bf16}: of the elements from `begin` on to `end`, what a table has of each; four of them by one load and one store,
   as processors load more words than they store. `to` may be `from`. */
FO_FN void fo_look_up_f16(const unsigned short *table, const unsigned short *from, unsigned short *to, long begin, long end) {
  for (; begin + 4 <= end; begin += 4) {
    fo_u64 bits;
    __builtin_memcpy(&bits, from + begin, sizeof bits);
    bits = table[bits & 0xffff] | (fo_u64)table[bits >> 16 & 0xffff] << 16 | (fo_u64)table[bits >> 32 & 0xffff] << 32 |
           (fo_u64)table[bits >> 48] << 48;
    __builtin_memcpy(to + begin, &bits, sizeof bits);
  }
  for (; begin < end; begin++) to[begin] = table[from[begin]];
}

/* fo_copy_short: `bytes` below 64, without a call. */
FO_FN void fo_copy_short(const char *from, char *to, long bytes) {
  if (bytes & 32) __builtin_memcpy(to, from, 32), from += 32, to += 32;
  if (bytes & 16) __builtin_memcpy(to, from, 16), from += 16, to += 16;
  if (bytes & 8) __builtin_memcpy(to, from, 8), from += 8, to += 8;
  if (bytes & 4) __builtin_memcpy(to, from, 4), from += 4, to += 4;
  if (bytes & 2) __builtin_memcpy(to, from, 2), from += 2, to += 2;
  if (bytes & 1) *to = *from;
}

/* fo_stream_line: 64 bytes to the start of a cache line, which is not read for it where machines have nontemporal stores. */
FO_FN void fo_stream_line(const char *from, char *to) {
#if defined(__clang__)
  typedef float fo_line __attribute__((vector_size(64), may_alias));
  fo_line line;
  __builtin_memcpy(&line, from, sizeof line);
  __builtin_nontemporal_store(line, (fo_line *)to);
#elif defined(__AVX512F__)
  typedef float fo_line __attribute__((vector_size(64), aligned(1), may_alias));
  __builtin_ia32_movntps512((float *)to, *(const fo_line *)from);
#elif defined(__AVX__)
  typedef float fo_line __attribute__((vector_size(32), aligned(1), may_alias));
  for (int k = 0; k < 64; k += 32) __builtin_ia32_movntps256((float *)(to + k), *(const fo_line *)(from + k));
#elif defined(__SSE__)
  typedef float fo_line __attribute__((vector_size(16), aligned(1), may_alias));
  for (int k = 0; k < 64; k += 16) __builtin_ia32_movntps((float *)(to + k), *(const fo_line *)(from + k));
#else
  __builtin_memcpy(to, from, 64);
#endif
}

/* fo_stream_bytes: a copy by nontemporal stores; what lies before the first whole line of the target and behind the last one is
   stored as usual. What other threads may read is there from the next fo_stream_end on. */
FO_FN void fo_stream_bytes(const char *from, char *to, long bytes) {
  long head = (long)(-(__UINTPTR_TYPE__)to % 64);
  head = head < bytes ? head : bytes;
  fo_copy_short(from, to, head);
  for (; head + 64 <= bytes; head += 64) fo_stream_line(from + head, to + head);
  fo_copy_short(from + head, to + head, bytes - head);
}

/* fo_stream_block_bytes: the same of a block of `whole` bytes, lines of the buffer and of the target, or of a part of it. */
FO_FN void fo_stream_block_bytes(const char *from, char *to, long bytes, long whole) {
  if (bytes != whole) {
    fo_stream_bytes(from, to, bytes);
  } else if ((__UINTPTR_TYPE__)to % 64) {
    __builtin_memcpy(to, from, (unsigned long)whole);
  } else {
    for (long k = 0; k < whole; k += 64) fo_stream_line(from + k, to + k);
  }
}

/* fo_stream_end: a fence: the thread's nontemporal stores come before whatever it stores next, as other threads see it. */
FO_FN void fo_stream_end(void) {
#if defined(__SSE__)
  __builtin_ia32_sfence();
#endif
}

/* fo_stream_{ELEMENT}: `count` elements from from[at] on become those from to[to_at] on, by nontemporal stores. */
FO_FN void fo_stream_{ELEMENT}(const {ELEMENT_C} *from, long at, {ELEMENT_C} *to, long to_at, long count) {
  fo_stream_bytes((const char *)(from + at), (char *)(to + to_at), count * (long)sizeof *from);
}

/* fo_stream_block_{ELEMENT}: the same; a whole block, of `size` elements, is lines of 64 bytes. */
FO_FN void fo_stream_block_{ELEMENT}(const {ELEMENT_C} *from, long at, {ELEMENT_C} *to, long to_at, long count, long size) {
  fo_stream_block_bytes(
      (const char *)(from + at), (char *)(to + to_at), count * (long)sizeof *from, size * (long)sizeof *from);
}

/* fo_line_offset_{ELEMENT}: how many elements to[at] lies behind the start of its cache line of 64 bytes. */
FO_FN long fo_line_offset_{ELEMENT}(const {ELEMENT_C} *to, long at) {
  return (long)((__UINTPTR_TYPE__)(to + at) % 64 / sizeof *to);
}

/* fo_prefetch_{ELEMENT}: asks for the cache lines of `count` elements from from[at] on, which need not be there. */
FO_FN void fo_prefetch_{ELEMENT}(const {ELEMENT_C} *from, long at, long count) {
  for (long i = 0; i < count; i += 64 / (long)sizeof *from) __builtin_prefetch(from + at + i, 0, 2);
}

/* fo_prefetch_lines_{ELEMENT}: asks for the cache lines of so many elements `step` apart. */
FO_FN void fo_prefetch_lines_{ELEMENT}(const {ELEMENT_C} *from, long at, long step, long count) {
  for (long i = 0; i < count; i++) __builtin_prefetch(from + at + i * step, 0, 2);
}

/* fo_prefetch_near_{ELEMENT}: the same into the first cache. */
FO_FN void fo_prefetch_near_{ELEMENT}(const {ELEMENT_C} *from, long at, long count) {
  for (long i = 0; i < count; i += 64 / (long)sizeof *from) __builtin_prefetch(from + at + i, 0, 3);
}

/* fo_request_{ELEMENT}: the same of lines that will be stored to. */
FO_FN void fo_request_{ELEMENT}(const {ELEMENT_C} *to, long at, long count) {
  for (long i = 0; i < count; i += 64 / (long)sizeof *to) __builtin_prefetch(to + at + i, 1, 3);
}

/* fo_prefetch_next_{ELEMENT}: the same where it is faster than what processors find out themselves: not on AMD's, as compilers name them. */
FO_FN void fo_prefetch_next_{ELEMENT}(const {ELEMENT_C} *from, long at, long count) {
#if defined(__znver1__) || defined(__znver2__) || defined(__znver3__) || defined(__znver4__) || defined(__znver5__)
  (void)from, (void)at, (void)count;
#else
  for (long i = 0; i < count; i += 64 / (long)sizeof *from) __builtin_prefetch(from + at + i, 0, 3);
#endif
}

/* fo_all_within_{f32|f64}: whether none of so many elements from x[at] on is NaN, or farther from 0 than `most`. */
FO_FN long fo_all_within_f32(long count, const float *x, long at, float most) {
  int bad = 0;
  for (long i = 0; i < count; i++) bad |= !(__builtin_fabsf(x[at + i]) <= most);
  return !bad;
}

/* fo_all_finite_{f32|f64}: whether none of them is infinite or NaN. */
FO_FN long fo_all_finite_f32(long count, const float *x, long at) {
  return fo_all_within_f32(count, x, at, {0x1.fffffep127f|0x1.fffffffffffffp1023});
}

/* fo_factor_rows_{f32|f64}: rows `step` apart are multiplied by their factors, which are 1 from then on. */
FO_FN void fo_factor_rows_f32(long rows, long columns, float *x, long step, float *factors) {
  for (long i = 0; i < rows; i++) {
    for (long j = 0; j < columns; j++) x[i * step + j] *= factors[i];
    factors[i] = 1.0f;
  }
}

/* fo_columns_used_{f32|f64}: how many leading columns of rows `step` apart have all elements that are not 0, but 1 at least. */
FO_FN long fo_columns_used_f32(long rows, long columns, const float *x, long step) {
  while (columns > 1) {
    long first = columns > 64 ? columns - 64 : 0;
    int used = 0;
    for (long i = 0; i < rows; i++)
      for (long j = first; j < columns; j++) used |= x[i * step + j] != 0.0f;
    if (used) break;
    columns = first;
  }
  return columns > 1 ? columns : 1;
}

/* fo_packed_length: the same length up to which several rows are in one vector, where lanes are moved as numbers say; else 0. */
FO_FN long fo_packed_length(long length) {
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
  return length;
#else
  (void)length;
  return 0;
#endif
}

/* fo_first_f32: so many elements from from[at] on, 16 at most, and zeros behind them; `x` begins at a cache line. */
FO_FN void fo_first_f32(const float *from, long at, long count, float *x) {
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
  typedef float fo_16 __attribute__((vector_size(64), may_alias));
  fo_16 none = {0};
  *(fo_16 *)x = (fo_16)__builtin_ia32_loadups512_mask(from + at, none, (unsigned short)((1u << count) - 1));
#else
  for (long lane = 0; lane < 16; lane++) x[lane] = lane < count ? from[at + lane] : 0.0f;
#endif
}

/* fo_put_first_f32: to[at] and so many elements from there on become the first ones of `x`. */
FO_FN void fo_put_first_f32(const float *x, float *to, long at, long count) {
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
  typedef float fo_16 __attribute__((vector_size(64), may_alias));
  __builtin_ia32_storeups512_mask(to + at, *(const fo_16 *)x, (unsigned short)((1u << count) - 1));
#else
  for (long lane = 0; lane < count; lane++) to[at + lane] = x[lane];
#endif
}

/* fo_spread_f32: each of 16 lanes becomes x[where + step], of which four bits count. */
FO_FN void fo_spread_f32(const float *x, const int *where, long step, float *y) {
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
  typedef float fo_16 __attribute__((vector_size(64), may_alias));
  typedef int fo_16i __attribute__((vector_size(64), may_alias));
  fo_16 none = {0};
  fo_16i from = *(const fo_16i *)where + (int)step;
  *(fo_16 *)y = (fo_16)__builtin_ia32_permvarsf512_mask(*(const fo_16 *)x, from, none, (unsigned short)-1);
#else
  for (long lane = 0; lane < 16; lane++) y[lane] = x[(where[lane] + step) & 15];
#endif
}
