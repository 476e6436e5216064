// RUN: fuse-opt %s --split-input-file --plan-memory | filecheck %s
// RUN: fuse-opt %s --split-input-file --plan-memory --plan-memory | filecheck %s
// RUN: fuse-opt %s --split-input-file --plan-memory | fuse-opt --split-input-file | filecheck %s
// RUN: fuse-opt %s --split-input-file --plan-memory=alignment=8 | filecheck %s
// RUN: fuse-opt %s --split-input-file --plan-memory --remarks 2>&1 >/dev/null | filecheck %s --check-prefix=REMARK
// RUN: fuse-opt %s --split-input-file --plan-memory=alignment=256 | filecheck %s --check-prefix=WIDE

// A workspace lives at its own step: two of them share bytes, and they lie over no value that is alive there. Offsets are
// multiples of 64 whatever the alignment.
// CHECK-LABEL: func.func @turns
// CHECK-SAME:    fused.arena = {alignment = 64 : i64, lower_bound = 1088 : i64, method = "{{.*}}", size = 1088 : i64}
// CHECK:         implementation = "mine.sort", workspace = 1000 : i64, slots = array<i64: 0>, workspace_slot = 64 : i64}
// CHECK:         implementation = "mine.sort", workspace = 500 : i64, slots = array<i64: -1>, workspace_slot = 64 : i64}
// REMARK: [plan-memory] planned: 'func.func' the arena is optimal workspaces=2 arena=1088 lower_bound=1088 gap=0.0 storages=1
// REMARK: [plan-memory] peak: 'func.func' at step 0 there live the workspace of "mine.sort" (1000 bytes), %a (64 bytes) step=0
// WIDE-LABEL:  func.func @turns
// WIDE-SAME:     alignment = 256 : i64, lower_bound = 1280 : i64, method = "{{.*}}", size = 1280 : i64
func.func @turns(%x: tensor<16xf32>) -> tensor<16xf32> {
  %a = fused.kernel(%0 = %x : tensor<16xf32>) -> (tensor<16xf32>) attributes {implementation = "mine.sort", workspace = 1000 : i64} {
    %1 = graph.exp %0 : (tensor<16xf32>) -> tensor<16xf32>
    fused.yield %1 : tensor<16xf32>
  }
  %b = fused.kernel(%0 = %a : tensor<16xf32>) -> (tensor<16xf32>) attributes {implementation = "mine.sort", workspace = 500 : i64} {
    %1 = graph.exp %0 : (tensor<16xf32>) -> tensor<16xf32>
    fused.yield %1 : tensor<16xf32>
  }
  func.return %b : tensor<16xf32>
}

// -----

// Without a value in the arena, a workspace is all of it.
// CHECK-LABEL: func.func @alone
// CHECK-SAME:    lower_bound = 128 : i64, method = "{{.*}}", size = 128 : i64
// CHECK:         workspace = 100 : i64, slots = array<i64: -1>, workspace_slot = 0 : i64}
func.func @alone(%x: tensor<16xf32>) -> tensor<16xf32> {
  %a = fused.kernel(%0 = %x : tensor<16xf32>) -> (tensor<16xf32>) attributes {implementation = "numpy.sort", workspace = 100 : i64} {
    %1 = graph.sort %0 : (tensor<16xf32>) -> tensor<16xf32>
    fused.yield %1 : tensor<16xf32>
  }
  func.return %a : tensor<16xf32>
}
