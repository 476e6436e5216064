/* The tree search of exact.py, step for step: the same nodes in the same order. Arrays are by rank. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int32_t i32;
typedef int64_t i64;

enum { PAUSED, FOUND, EXHAUSTED, NO_MEMORY };

/* One open choice: which of `list[begin..end)` goes next. Its parts without it are `list[next_part..parts_end)`. */
typedef struct {
    i32 begin, end, list_base, candidate, candidates_base, candidates_end;
    i32 placed, forced, last, trail_mark, placed_mark, next_part, parts_end;
    i64 floor;
} Frame;

typedef struct {
    i32 n, sections;
    i64 capacity, nodes;
    i32 *lo, *hi, *twin, *rows, *members, *counts, *list, *candidates, *trail, *placed;
    i64 *size, *low, *offset, *left, *conflicts, *trail_low;
    char *waits;
    Frame *frames;
    i64 list_room, candidates_room, trail_room;
    i32 list_top, candidates_top, trail_top, placed_top, depth;
    int outcome;
} Search;

static int grow(void *array, i64 *room, i64 needed, size_t width) {
    if (needed <= *room) return 1;
    void *larger = realloc(*(void **)array, (size_t)(2 * needed) * width);
    if (!larger) return 0;
    *(void **)array = larger;
    *room = 2 * needed;
    return 1;
}

static void count_conflict(Search *q, i32 section) {
    for (i32 k = q->rows[section]; k < q->rows[section + 1]; k++)
        if (q->waits[q->members[k]]) q->conflicts[q->members[k]]++;
}

static int may_go(const Search *q, i32 rank, i64 floor, i32 last) {
    i64 low = q->low[rank];
    return (low > floor || (low == floor && rank > last)) && (q->twin[rank] < 0 || !q->waits[q->twin[rank]]);
}

/* The section that leaves at most one choice: -1 none, -2 a dead end. */
static i32 forced_section(Search *q, const Frame *f, i32 s0, i32 s1, i64 lift) {
    memset(q->counts + s0, 0, (size_t)(s1 - s0) * sizeof(i32));
    for (i32 k = f->begin; k < f->end; k++) {
        i32 rank = q->list[k];
        if (q->low[rank] >= lift || !may_go(q, rank, f->floor, f->last)) continue;
        for (i32 s = q->lo[rank]; s < q->hi[rank]; s++)
            q->counts[s] += q->low[rank] + q->left[s] <= q->capacity;
    }
    i32 fewest = 2, chosen = -1;
    for (i32 s = s0; s < s1; s++) {
        if (!q->left[s] || q->capacity - q->left[s] >= lift || q->counts[s] > fewest || q->counts[s] > 1) continue;
        if (q->counts[s] < fewest || q->left[s] > q->left[chosen]) fewest = q->counts[s], chosen = s;
    }
    if (fewest) return chosen;
    count_conflict(q, chosen);
    return -2;
}

static int open_frame(Search *q, i32 begin, i32 end, i64 floor, i32 last) {
    Frame *f = &q->frames[q->depth++];
    *f = (Frame){.begin = begin, .end = end, .floor = floor, .last = last, .placed = -1, .list_base = q->list_top};
    f->candidate = f->candidates_base = f->candidates_end = q->candidates_top;
    if (!grow(&q->candidates, &q->candidates_room, (i64)q->candidates_top + end - begin, sizeof(i32))) return 0;
    i32 s0 = q->lo[q->list[begin]], s1 = 0;
    i64 gap = INT64_MAX, lift = INT64_MAX, most = 0;
    for (i32 k = begin; k < end; k++) {
        i32 rank = q->list[k];
        i64 low = q->low[rank], size = q->size[rank];
        if (low + size < gap) gap = low + size;
        if ((low > floor ? low : floor) + size < lift) lift = (low > floor ? low : floor) + size;
        if (q->hi[rank] > s1) s1 = q->hi[rank];
    }
    for (i32 s = s0; s < s1; s++)
        if (q->left[s] > most) most = q->left[s];
    i64 highest = q->capacity - most;
    if (floor > highest) return 1;
    i32 section = highest < lift ? forced_section(q, f, s0, s1, lift) : -1;
    if (section == -2) return 1;
    f->forced = section >= 0;
    if (f->forced) highest = q->capacity - q->left[section];
    for (i32 k = begin; k < end; k++) {
        i32 rank = q->list[k];
        i64 low = q->low[rank];
        if (low > highest || !may_go(q, rank, floor, last)) continue;
        if (f->forced ? q->lo[rank] > section || q->hi[rank] <= section : low >= gap) continue;
        i32 at = q->candidates_top++;
        for (; at > f->candidates_base; at--) {
            i32 other = q->candidates[at - 1];
            if (q->low[other] < low || (q->low[other] == low && other < rank)) break;
            q->candidates[at] = other;
        }
        q->candidates[at] = rank;
    }
    f->candidates_end = q->candidates_top;
    return 1;
}

static void take_back(Search *q, Frame *f) {
    while (q->trail_top > f->trail_mark) {
        q->trail_top--;
        q->low[q->trail[q->trail_top]] = q->trail_low[q->trail_top];
    }
    while (q->placed_top > f->placed_mark) {
        i32 rank = q->placed[--q->placed_top];
        q->waits[rank] = 1;
        for (i32 s = q->lo[rank]; s < q->hi[rank]; s++) q->left[s] += q->size[rank];
    }
    q->list_top = f->list_base;
    f->placed = -1;
}

/* Whether a section whose waiting buffers were lifted can still hold them, each at or above its lowest offset. */
static int section_holds(Search *q, i32 s) {
    i32 *members = q->members + q->rows[s], count = q->rows[s + 1] - q->rows[s];
    for (i32 k = 1; k < count; k++) {
        i32 rank = members[k], at = k;
        for (; at && q->low[members[at - 1]] > q->low[rank]; at--) members[at] = members[at - 1];
        members[at] = rank;
    }
    i64 height = 0;
    for (i32 k = 0; k < count; k++) {
        i32 rank = members[k];
        if (!q->waits[rank]) continue;
        height = (q->low[rank] > height ? q->low[rank] : height) + q->size[rank];
    }
    return height <= q->capacity;
}

/* 1 placed, 0 some section cannot hold what remains, -1 no memory. The caller takes back what failed. */
static int place(Search *q, Frame *f, i32 chosen) {
    i64 top = q->low[chosen] + q->size[chosen];
    i32 lo = q->lo[chosen], hi = q->hi[chosen], s0 = lo, s1 = hi, full = -1;
    i64 length = f->end - f->begin, room = q->trail_room;
    f->trail_mark = q->trail_top, f->placed_mark = q->placed_top, f->placed = chosen;
    q->offset[chosen] = q->low[chosen];
    q->waits[chosen] = 0;
    q->placed[q->placed_top++] = chosen;
    for (i32 s = lo; s < hi; s++) {
        q->left[s] -= q->size[chosen];
        if (full < 0 && q->left[s] && top + q->left[s] > q->capacity) full = s;
    }
    if (full >= 0) {
        count_conflict(q, full);
        return 0;
    }
    if (!grow(&q->list, &q->list_room, f->list_base + length, sizeof(i32))) return -1;
    if (!grow(&q->trail, &room, q->trail_top + length, sizeof(i32))) return -1;
    if (!grow(&q->trail_low, &q->trail_room, q->trail_top + length, sizeof(i64))) return -1;
    i32 write = f->list_base;
    f->next_part = write;
    for (i32 k = f->begin; k < f->end; k++) {
        i32 rank = q->list[k];
        if (rank == chosen) continue;
        q->list[write++] = rank;
        if (q->lo[rank] >= hi || lo >= q->hi[rank] || q->low[rank] >= top) continue;
        q->trail[q->trail_top] = rank;
        q->trail_low[q->trail_top++] = q->low[rank];
        q->low[rank] = top;
        if (q->lo[rank] < s0) s0 = q->lo[rank];
        if (q->hi[rank] > s1) s1 = q->hi[rank];
    }
    f->parts_end = q->list_top = write;
    for (i32 s = s0; s < s1; s++) {
        if ((s >= lo && s < hi) || top + q->left[s] <= q->capacity || section_holds(q, s)) continue;
        count_conflict(q, s);
        return 0;
    }
    return 1;
}

/* Opens the next part: the buffers up to a section that none of them crosses. */
static int open_part(Search *q, Frame *f) {
    i32 begin = f->next_part, end = begin, reach = q->hi[q->list[begin]];
    for (; end < f->parts_end && q->lo[q->list[end]] < reach; end++)
        if (q->hi[q->list[end]] > reach) reach = q->hi[q->list[end]];
    f->next_part = end;
    if (f->forced) return open_frame(q, begin, end, f->floor, f->last);
    return open_frame(q, begin, end, q->offset[f->placed], f->placed);
}

int fuse_pack_run(Search *q, i64 limit) {
    i64 stop = q->nodes + limit;
    while (q->depth) {
        Frame *f = &q->frames[q->depth - 1];
        if (f->placed >= 0 && f->next_part < f->parts_end) {
            if (!open_part(q, f)) return NO_MEMORY;
        } else if (f->placed >= 0) {
            q->candidates_top = f->candidates_base;
            q->outcome = FOUND;
            if (--q->depth) q->list_top = q->frames[q->depth - 1].parts_end;
        } else if (f->candidate == f->candidates_end) {
            q->candidates_top = f->candidates_base;
            q->outcome = EXHAUSTED;
            if (--q->depth) take_back(q, &q->frames[q->depth - 1]);
        } else {
            if (q->nodes == stop) return PAUSED;
            q->nodes++;
            int placed = place(q, f, q->candidates[f->candidate++]);
            if (placed < 0) return NO_MEMORY;
            if (!placed) take_back(q, f);
        }
    }
    return q->outcome;
}

i64 fuse_pack_nodes(const Search *q) { return q->nodes; }

void fuse_pack_read(const Search *q, i64 *offsets, i64 *conflicts) {
    memcpy(offsets, q->offset, (size_t)q->n * sizeof(i64));
    memcpy(conflicts, q->conflicts, (size_t)q->n * sizeof(i64));
}

void fuse_pack_free(Search *q) {
    if (!q) return;
    void *owned[] = {q->lo, q->hi, q->twin, q->rows, q->members, q->counts, q->list, q->candidates, q->trail, q->placed,
                     q->size, q->low, q->offset, q->left, q->conflicts, q->trail_low, q->waits, q->frames};
    for (size_t k = 0; k < sizeof owned / sizeof *owned; k++) free(owned[k]);
    free(q);
}

static void *copied(const void *from, i64 count, size_t width) {
    void *to = malloc((size_t)count * width);
    return to ? memcpy(to, from, (size_t)count * width) : to;
}

static int fill(Search *q, const i32 *order) {
    i32 n = q->n, *at = q->counts;
    for (i32 k = 0; k < n; k++) q->list[k] = order[k], q->waits[k] = 1;
    for (i32 k = 0; k < n; k++)
        for (i32 s = q->lo[k]; s < q->hi[k]; s++) q->left[s] += q->size[k], q->rows[s + 1]++;
    for (i32 s = 0; s < q->sections; s++) q->rows[s + 1] += q->rows[s], at[s] = q->rows[s];
    q->members = malloc(((size_t)q->rows[q->sections] + 1) * sizeof(i32));
    if (!q->members) return 0;
    for (i32 k = 0; k < n; k++)
        for (i32 s = q->lo[k]; s < q->hi[k]; s++) q->members[at[s]++] = k;
    q->list_top = n;
    return open_frame(q, 0, n, 0, -1);
}

/* `order` lists the ranks by `lo`; the buffers are connected and at least one. Null without memory. */
Search *fuse_pack_new(i32 n, i32 sections, i64 capacity, const i32 *lo, const i32 *hi, const i64 *size, const i32 *twin,
                      const i32 *order) {
    Search *q = calloc(1, sizeof *q);
    if (!q) return 0;
    q->n = n, q->sections = sections, q->capacity = capacity;
    q->list_room = q->candidates_room = q->trail_room = 4 * (i64)n;
    q->lo = copied(lo, n, sizeof(i32)), q->hi = copied(hi, n, sizeof(i32)), q->size = copied(size, n, sizeof(i64));
    q->twin = copied(twin, n, sizeof(i32));
    q->rows = calloc((size_t)sections + 1, sizeof(i32)), q->counts = calloc((size_t)sections, sizeof(i32));
    q->list = malloc((size_t)q->list_room * sizeof(i32));
    q->candidates = malloc((size_t)q->candidates_room * sizeof(i32));
    q->trail = malloc((size_t)q->trail_room * sizeof(i32));
    q->trail_low = malloc((size_t)q->trail_room * sizeof(i64));
    q->placed = malloc((size_t)n * sizeof(i32)), q->frames = malloc(((size_t)n + 1) * sizeof(Frame));
    q->low = calloc((size_t)n, sizeof(i64)), q->offset = calloc((size_t)n, sizeof(i64));
    q->left = calloc((size_t)sections, sizeof(i64)), q->conflicts = calloc((size_t)n, sizeof(i64));
    q->waits = malloc((size_t)n);
    if (q->lo && q->hi && q->size && q->twin && q->rows && q->counts && q->list && q->candidates && q->trail &&
        q->trail_low && q->placed && q->frames && q->low && q->offset && q->left && q->conflicts && q->waits &&
        fill(q, order))
        return q;
    fuse_pack_free(q);
    return 0;
}
