/* Gradients of convolutions, of which the one of the input is the transposed convolution; follows convolution_tasks.c in
 * one text. Records are those of the convolution: `extent` is of its input, `result` of its result. */

/* A task is a block of channels of the input's gradient, of one sample and group: products of the transposed filters with
 * some positions of the gradient at a time, folded onto it. Nothing is multiplied by zeros around the gradient, so a
 * filter that is not finite reaches only what it is multiplied with. */
void fuse_run_fold(void *arg, long begin, long end) {
  struct fuse_convolution *call = arg;
  const struct convolution *v = call->v;
  int64_t places = v->window[0] * v->window[1] * v->window[2], window = v->channels * places;
  int64_t positions = v->result[0] * v->result[1] * v->result[2];
  int64_t plane = v->extent[0] * v->extent[1] * v->extent[2];
  int64_t blocks = (v->channels - 1) / v->channels_block + 1;
  char *columns = scratch((size_t)(v->channels_block * places * v->position_block * v->item));
  if (!columns) {
    atomic_store(&call->failed, 1);
    return;
  }
  for (long task = begin; task < end; task++) {
    int64_t part = task / blocks, group = part % v->groups, channel = task % blocks * v->channels_block;
    int64_t channels = smaller(v->channels_block, v->channels - channel);
    const char *grad = address(call->x) + part * v->filters * positions * v->item;
    const char *weight = address(call->weight) + (group * v->filters * window + channel * places) * v->item;
    char *out = address(call->out) + (part * v->channels + channel) * plane * v->item;
    memset(out, 0, (size_t)(channels * plane * v->item));
    for (int64_t p = 0; p < positions; p += v->position_block) {
      int64_t count = smaller(v->position_block, positions - p);
      gemm(v->item, channels * places, count, v->filters, (struct matrix){weight, 1, window},
           (struct matrix){grad + p * v->item, 0, positions}, 0.0, columns, count);
      for (int64_t k = 0; k < channels * places; k++)
        move_place(v, out + k / places * plane * v->item, k % places, p, p + count, columns + k * count * v->item, 1);
    }
  }
}

/* A task is a block of a weight's gradient: sums, over samples and positions, of products of the result's gradient (`x`)
 * with unfolded windows of the input (`weight`). */
void fuse_run_weight_gradient(void *arg, long begin, long end) {
  struct fuse_convolution *call = arg;
  const struct convolution *v = call->v;
  int64_t window = v->channels * v->window[0] * v->window[1] * v->window[2];
  int64_t positions = v->result[0] * v->result[1] * v->result[2];
  int64_t plane = v->extent[0] * v->extent[1] * v->extent[2];
  int64_t across = (window - 1) / v->depth + 1, down = (v->filters - 1) / v->filter_block + 1;
  char *unfolded = scratch((size_t)(v->depth * v->position_block * v->item));
  if (!unfolded) {
    atomic_store(&call->failed, 1);
    return;
  }
  for (long task = begin; task < end; task++) {
    int64_t group = task / (down * across), filter = task / across % down * v->filter_block;
    int64_t first = task % across * v->depth, last = smaller(first + v->depth, window);
    int64_t filters = smaller(v->filter_block, v->filters - filter);
    char *out = address(call->out) + ((group * v->filters + filter) * window + first) * v->item;
    for (int64_t sample = 0; sample < v->samples; sample++) {
      int64_t part = sample * v->groups + group;
      const char *grad = address(call->x) + (part * v->filters + filter) * positions * v->item;
      const char *x = address(call->weight) + part * v->channels * plane * v->item;
      for (int64_t p = 0; p < positions; p += v->position_block) {
        int64_t count = smaller(v->position_block, positions - p);
        unfold(v, x, first, last, p, p + count, unfolded);
        gemm(v->item, filters, last - first, count, (struct matrix){grad + p * v->item, 0, positions},
             (struct matrix){unfolded, 1, count}, sample || p, out, window);
      }
    }
  }
}
