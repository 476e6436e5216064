/* Copies of operands of products of which a tile multiplies several neighbours along the contracted dimension at a time: groups
   of four bytes, filled up with zeros at the end. */

/* fo_panel_{bf16|i8}: `columns` columns of k elements, `row` apart along k and `column` across it, as rows of groups, to_step
   apart. Of bytes a row follows of 128 times the sums of columns. */
FO_FN void fo_panel_bf16(long k, long columns, const {unsigned short|signed char} *from, long at, long row, long column,
    {unsigned short|signed char} *to, long to_at, long to_step) {
  enum { group = {2|4}, bits = 32 / group };
  typedef fo_u32 __attribute__((may_alias, aligned({2|1}))) word;
  word *out = (word *)(to + to_at);
  from += at;
  long whole = k / group, first = 0;
  if (column == 1) {
    for (long p = 0; p < whole; p++) {
      const {unsigned short|unsigned char} *q = (const {unsigned short|unsigned char} *)(from + p * group * row);
      for (long j = 0; j < columns; j++) {
        fo_u32 x = 0;
        for (int g = 0; g < group; g++) x |= (fo_u32)q[g * row + j] << g * bits;
        out[p * to_step + j] = x;
      }
    }
    first = whole;
  } else if (row == 1 && column % group == 0) {
    first = whole / 16 * 16;
    for (long j = 0; j + 16 <= columns; j += 16)
      for (long p = 0; p < first; p += 16)
        fo_transpose_tile_u32(from + j * column + p * group, column / group, out + p * to_step + j, to_step);
    for (long j = columns / 16 * 16; j < columns; j++)
      for (long p = 0; p < first; p++) out[p * to_step + j] = *(const word *)(from + j * column + p * group);
  }
  for (long p = first; p * group < k; p++)
    for (long j = 0; j < columns; j++) {
      fo_u32 x = 0;
      for (int g = 0; g < group && p * group + g < k; g++)
        x |= (fo_u32)({unsigned short|unsigned char})from[(p * group + g) * row + j * column] << g * bits;
      out[p * to_step + j] = x;
    }
  if (group == 4) {
    long end = (k + group - 1) / group;
    word *sums = out + end * to_step;
    for (long j = 0; j < columns; j++) sums[j] = 0;
    for (long p = 0; p < end; p++)
      for (long j = 0; j < columns; j++) {
        int x = (int)out[p * to_step + j];
        sums[j] += (fo_u32)((x << 24 >> 24) + (x << 16 >> 24) + (x << 8 >> 24) + (x >> 24)) << 7;
      }
  }
}

/* fo_rows_bf16: `rows` rows of k elements, `row` apart and `column` along k, as rows of groups, to_step elements apart. */
FO_FN void fo_rows_bf16(long rows, long k, const unsigned short *from, long at, long row, long column,
    unsigned short *to, long to_at, long to_step) {
  from += at, to += to_at;
  for (long i = 0; i < rows; i++, from += row, to += to_step) {
    for (long p = 0; p < k; p++) to[p] = from[p * column];
    if (k % 2) to[k] = 0;
  }
}

/* fo_rows_{i8|ui8}: the same of bytes, with groups eight bytes apart. Where pairs of 16 bits are multiplied, a group is its first and
   third byte in 16 bits each, then the second and fourth; elsewhere four bytes, of signed ones moved up by 128, to unsigned ones. */
FO_FN void fo_rows_i8(long rows, long k, const {signed char|unsigned char} *from, long at, long row, long column,
    {signed char|unsigned char} *to, long to_at, long to_step) {
  long end = k / 4;
  from += at, to += to_at;
  for (long i = 0; i < rows; i++, from += row, to += to_step) {
#if defined(__AVX2__) && !(defined(__AVX512VL__) && defined(__AVX512VNNI__))
    typedef {short|unsigned short} __attribute__((may_alias, aligned(1))) half;
    half *out = (half *)to;
    if (column == 1) {
      const half *in = (const half *)from;
      for (long p = 0; p < end; p++) {
        {short|unsigned short} x = in[2 * p], y = in[2 * p + 1];
        out[4 * p] = ({short|unsigned short})({short|unsigned short})(x << 8) >> 8, out[4 * p + 2] = x >> 8;
        out[4 * p + 1] = ({short|unsigned short})({short|unsigned short})(y << 8) >> 8, out[4 * p + 3] = y >> 8;
      }
    } else
      for (long p = 0; p < end; p++)
        for (int g = 0; g < 4; g++) out[4 * p + g] = from[(4 * p + (g & 1) * 2 + (g >> 1)) * column];
    if (end * 4 < k)
      for (int g = 0; g < 4; g++) {
        long place = 4 * end + (g & 1) * 2 + (g >> 1);
        out[4 * end + g] = place < k ? from[place * column] : 0;
      }
#else
    typedef fo_u32 __attribute__((may_alias, aligned(1))) word;
    enum { up = {128|0} };
    if (column == 1)
      for (long p = 0; p < end; p++) *(word *)(to + 8 * p) = *(const word *)(from + 4 * p) ^ up * 0x01010101u;
    else
      for (long p = 0; p < end * 4; p++) to[(p & ~3l) * 2 + (p & 3)] = from[p * column] ^ up;
    for (long p = end * 4; p < (k + 3) / 4 * 4; p++) to[(p & ~3l) * 2 + (p & 3)] = p < k ? from[p * column] ^ up : 0;
#endif
  }
}
