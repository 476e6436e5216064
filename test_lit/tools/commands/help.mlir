// RUN: fuse-opt --fuse-horizontal=help | filecheck %s --check-prefix=PASS
// RUN: fuse-opt --unfused=help | filecheck %s --check-prefix=PIPELINE
// RUN: fuse-opt -t help | filecheck %s --check-prefix=TARGET
// RUN: fuse-opt --help | filecheck %s --check-prefix=ALL
// RUN: not fuse-opt %s --fuse-row=except-for=x 2>&1 | filecheck %s --check-prefix=OPTION

// Options of the base come first, with the values that this pass states in place of theirs.
// PASS:      usage: fuse-opt [FILE] --fuse-horizontal[=option=value,...]
// PASS:      {{^}}options:
// PASS-NEXT:   max-ops=N {{ +}}Graph ops in one kernel. (default: 1024)
// PASS:        except=WORD,... {{ +}}Names of ops that stay as they are.

// PIPELINE:  --unfused: One kernel for each op
// PIPELINE:    assign-storage, lower-storage, select-composites, decompose, assign-layouts, wrap-kernels,
// PIPELINE-NEXT: select-implementation, schedule-kernels, plan-memory, bulk-launches

// TARGET:      targets of -t:
// TARGET-NEXT:   c {{ +}}The C text

// ALL: usage: fuse-opt
// ALL: targets of -t:
// ALL: {{^}}  --default
// ALL: {{^}}simplify: Algebra
// ALL: {{^}}  --cse
// ALL: {{^}}fusion: The fusion rules
// ALL: {{^}}  --fuse-row
// ALL: {{^}}options that --fuse-attention

// OPTION: fuse-opt: error: pass 'fuse-row' has no option 'except-for'; did you mean 'except'?
