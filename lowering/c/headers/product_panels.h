/* Copies of operands of products of which a tile multiplies several neighbours along the contracted dimension at a time: groups
   of four bytes, filled up with zeros at the end. */

/* fo_panel_row_{bf16|i8|ui8}: a row of groups, from rows of so many columns side by side, `row` apart. */
FO_FN void fo_panel_row_bf16(long columns, const {unsigned short|signed char|signed char} *restrict from, long row,
    {unsigned short|signed char|signed char} *restrict to) {
  enum { group = {2|4|4} };
  typedef {unsigned short|unsigned char|unsigned char} __attribute__((may_alias)) part;
  const part *restrict q = (const part *)from;
  part *restrict o = (part *)to;
  for (long j = 0; j < columns; j++)
    for (int g = 0; g < group; g++) o[group * j + g] = q[g * row + j];
}

/* fo_panel_end_{bf16|i8|ui8}: what follows the `first` rows of groups of a panel. */
FO_FN void fo_panel_end_bf16(long k, long first, long columns, const {unsigned short|signed char|signed char} *restrict from, long row,
    long column, {unsigned short|signed char|signed char} *restrict to, long to_step, long groups) {
  enum { group = {2|4|4}, bits = 32 / group };
  typedef fo_u32 __attribute__((may_alias, aligned({2|1|1}))) word;
  word *out = (word *)to;
  for (long p = first; p * group < k; p++)
    for (long j = 0; j < columns; j++) {
      fo_u32 x = 0;
      for (int g = 0; g < group && p * group + g < k; g++)
        x |= (fo_u32)({unsigned short|unsigned char|unsigned char})from[(p * group + g) * row + j * column] << g * bits;
      out[p * to_step + j] = x;
    }
  for (long p = (k + group - 1) / group; p < groups; p++)
    for (long j = 0; j < columns; j++) out[p * to_step + j] = 0;
#if !(defined(__AVX512VL__) && defined(__AVX512BF16__))
  typedef fo_u32 __attribute__((may_alias)) wide;
  for (long p = groups - 1; group == 2 && p >= 0; p--)
    for (long j = 0; j < columns; j++) {
      const fo_u32 x = out[p * to_step + j];
      ((wide *)out)[2 * p * to_step + j] = x << 16;
      ((wide *)out)[(2 * p + 1) * to_step + j] = x & 0xffff0000u;
    }
#endif
}

/* fo_panel_{bf16|i8|ui8}: `columns` columns of k elements, `row` apart along k and `column` across it, as rows of groups, to_step
   apart, for a left operand of that type; rows of zeros follow up to so many `groups`. Where no instruction multiplies pairs of
   bf16, these become two rows of f32, to_step apart, for which `to` has room. */
FO_FN void fo_panel_bf16(long k, long columns, const {unsigned short|signed char|signed char} *restrict from, long at, long row,
    long column, {unsigned short|signed char|signed char} *restrict to, long to_at, long to_step, long groups) {
  enum { group = {2|4|4} };
  typedef fo_u32 __attribute__((may_alias, aligned({2|1|1}))) word;
  word *out = (word *)(to + to_at);
  from += at;
  long whole = k / group, first = 0;
  if (column == 1) {
    for (first = 0; first < whole; first++)
      fo_panel_row_{bf16|i8|ui8}(columns, from + first * group * row, row, (void *)(out + first * to_step));
  } else if (row == 1) {
    first = whole / 16 * 16;
    for (long j = 0; j + 16 <= columns; j += 16)
      for (long p = 0; p < first; p += 16) {
        const void *square = from + j * column + p * group;
        fo_u32 beside[16][16];  // where columns are no whole number of groups apart
        if (column % group)
          for (long i = 0; i < 16; i++) __builtin_memcpy(beside[i], from + (j + i) * column + p * group, sizeof beside[i]);
        const long apart = column % group ? 16 : column / group;
        fo_transpose_tile_u32(column % group ? beside : square, apart, out + p * to_step + j, to_step);
      }
    for (long j = columns / 16 * 16; j < columns; j++)
      for (long p = 0; p < first; p++) out[p * to_step + j] = *(const word *)(from + j * column + p * group);
  }
  fo_panel_end_{bf16|i8|ui8}(k, first, columns, from, row, column, to + to_at, to_step, groups);
}

/* fo_panels_{bf16|i8|ui8}: the same of panels of `width` columns, `distance` elements apart. Columns that lie side by side are read
   row by row for all panels, as processors ask ahead for long stretches. */
FO_FN void fo_panels_bf16(long k, long columns, const {unsigned short|signed char|signed char} *restrict from, long at, long row,
    long column, {unsigned short|signed char|signed char} *restrict to, long to_at, long to_step, long groups, long width,
    long distance) {
  enum { group = {2|4|4}, common = 32 };
  const long whole = column == 1 ? k / group : 0;
  from += at, to += to_at;
  for (long p = 0; p < whole; p++)
    for (long j = 0, n = 0; j < columns; j += width, n += distance) {
      const {unsigned short|signed char|signed char} *rows = from + p * group * row + j;
      const long some = columns - j < width ? columns - j : width;
      if (some == common) fo_panel_row_{bf16|i8|ui8}(common, rows, row, to + n + p * group * to_step);
      else fo_panel_row_{bf16|i8|ui8}(some, rows, row, to + n + p * group * to_step);
    }
  for (long j = 0, n = 0; j < columns; j += width, n += distance) {
    const long some = columns - j < width ? columns - j : width;
    if (column == 1) fo_panel_end_{bf16|i8|ui8}(k, whole, some, from + j, row, column, to + n, to_step, groups);
    else fo_panel_{bf16|i8|ui8}(k, some, from, j * column, row, column, to, n, to_step, groups);
  }
}

/* fo_rows_{bf16|i8|ui8}: `rows` rows of k elements, `row` apart and `column` along k, as rows of so many `groups`, to_step elements apart,
   with zeros at the end: up to a line of 64 bytes of them. */
FO_FN void fo_rows_bf16(long rows, long k, const {unsigned short|signed char|unsigned char} *from, long at, long row, long column,
    {unsigned short|signed char|unsigned char} *to, long to_at, long to_step, long groups) {
  enum { group = {2|4|4} };
  from += at, to += to_at;
#if defined(__AVX512BW__) && defined(__GNUC__) && !defined(__clang__)
  if (column == 1) {
    typedef char fo_line __attribute__((vector_size(64), aligned(1), may_alias));
    const long bytes = k * (long)sizeof *from, left = bytes % 64, last = 4 * groups - (bytes - left);
    for (long i = 0; i < rows; i++, from += row, to += to_step) {
      const char *source = (const char *)from;
      char *target = (char *)to;
      long p = 0;
      for (; p + 64 <= bytes; p += 64) *(fo_line *)(target + p) = *(const fo_line *)(source + p);
      if (left) {
        const fo_line rest = (fo_line)__builtin_ia32_loaddquqi512_mask((const void *)(source + p), (fo_line){0}, (1ul << left) - 1);
        __builtin_ia32_storedquqi512_mask((void *)(target + p), rest, last < 64 ? (1ul << last) - 1 : ~0ul);
      }
    }
    return;
  }
#endif
  const long turned = row == 1 && column != 1 ? rows / 16 * 16 : 0, whole = k / 16 * 16;
  for (long i = 0; i < turned; i += 16)
    for (long p = 0; p < whole; p += 16)
      fo_transpose_tile_{u16|u8|u8}(from + i + p * column, column, to + i * to_step + p, to_step);
  for (long i = 0; i < rows; i++, from += row, to += to_step) {
    if (column == 1)
      for (long p = 0; p < k; p++) to[p] = from[p];
    else
      for (long p = i < turned ? whole : 0; p < k; p++) to[p] = from[p * column];
    for (long p = k; p < group * groups; p++) to[p] = 0;
  }
}

/* fo_sum_row_i8: 128 times the sum of k groups of four bytes, modulo 2^32: what is too much in a row of products whose other
   operand's elements are 128 too large. */
FO_FN int fo_sum_row_i8(long k, const signed char *a) {
  fo_u32 sum = 0;
  long p = 0;
#if defined(__AVX512VL__) && defined(__AVX512VNNI__)
  typedef fo_u32 __attribute__((vector_size(64), aligned(1), may_alias)) words;
  const words all = (words){0} + 0x80808080u;
  words s[2] = {{0}};  // in turn, as an instruction waits for the one before
  for (; p + 32 <= k; p += 32)
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
      __asm__("vpdpbusd %2, %1, %0" : "+v"(s[i]) : "v"(all), "v"(*(const words *)(a + 4 * p + 64 * i)));
  s[0] += s[1];
  for (int i = 0; p && i < 16; i++) sum += s[0][i];
#endif
  for (long q = 4 * p; q < 4 * k; q++) sum += 128u * (fo_u32)a[q];
  return (int)sum;
}
