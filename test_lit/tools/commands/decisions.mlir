// RUN: fuse-opt %s --fuse-elementwise --fuse-row --dump-decisions=%t -o %t.fused
// RUN: filecheck %s --check-prefix=DUMP < %t
// RUN: fuse-opt %s --fuse-elementwise --fuse-row --fuel=2 --remarks 2>&1 >/dev/null | filecheck %s --check-prefix=FUEL
// RUN: fuse-opt %s --fuse-elementwise --fuse-row=fuel=0 | filecheck %s --check-prefix=FIRST
// RUN: not fuse-opt %s --fuse-row --replay-decisions=%t 2>&1 | filecheck %s --check-prefix=GONE
// RUN: fuse-opt %s --fuse-elementwise --fuse-row --replay-decisions=%t | diff - %t.fused

// DUMP:      fuse-elementwise @main: graph.subtract#0 %shifted + graph.exp#0
// DUMP-NEXT: fuse-row @main: graph.max#0 %largest + graph.subtract#0 %shifted
// DUMP-NEXT: fuse-row @main: graph.exp#0 + graph.sum#0 %total
// DUMP-NOT:  {{.}}

// FUEL-COUNT-2: ] fused:
// FUEL: [fuse-row] fuel: 'graph.sum' not fused with 'graph.max'{{.*}}: the fuel for 2 decisions is used up

// FIRST: fused.kernel
// FIRST-NOT: fused.kernel

// GONE: decisions.mlir.tmp:1:1: error: no pass 'fuse-elementwise' that takes decisions is in the pipeline

func.func @main(%x: tensor<32x8xf32>) -> tensor<32x1xf32> {
  %largest = graph.max %x {axes = array<i64: 1>, keepdims = true} : (tensor<32x8xf32>) -> tensor<32x1xf32>
  %shifted = graph.subtract %x, %largest : (tensor<32x8xf32>, tensor<32x1xf32>) -> tensor<32x8xf32>
  %0 = graph.exp %shifted : (tensor<32x8xf32>) -> tensor<32x8xf32>
  %total = graph.sum %0 {axes = array<i64: 1>, keepdims = true} : (tensor<32x8xf32>) -> tensor<32x1xf32>
  func.return %total : tensor<32x1xf32>
}
