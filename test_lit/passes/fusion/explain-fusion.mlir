// RUN: fuse-opt %s --split-input-file --fuse-injective --fuse-elementwise --fuse-row --explain-fusion --remarks -o - 2>&1 >/dev/null | filecheck %s

// One reason for each pair that stays apart; the refusals of the passes before are taken back.
func.func @library(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %a = graph.exp %x : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %p = graph.matmul %a, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %r = graph.add %a, %p : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %r : tensor<8x8xf32>
}
// CHECK:      remark: [explain-fusion] multi-use: 'graph.matmul' not fused with 'graph.exp' {{.*}}what 'graph.matmul' reads is read elsewhere, too (otherwise with: no other reader) bytes_saved=256 time_saved_us=
// CHECK-NEXT: remark: [explain-fusion] cycle: 'graph.add' not fused with 'graph.exp' {{.*}}'graph.matmul' outside the group depends on it and feeds it: a cycle (otherwise with: fuse 'graph.matmul' with them) bytes_saved=256 time_saved_us=
// CHECK-NEXT: remark: [explain-fusion] opaque: 'graph.add' not fused with 'graph.matmul'
// CHECK-NOT:  remark: [fuse-elementwise]

// -----

func.func @directives(%x: tensor<64x128xf32>, %y: tensor<4096x64x128xf32>) -> tensor<4096x64x128xf32> {
  %a = graph.exp %x {no_fuse} : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %b = graph.abs %a {stop_fusion} : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %c = graph.tanh %b : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %d = graph.add %c, %y : (tensor<64x128xf32>, tensor<4096x64x128xf32>) -> tensor<4096x64x128xf32>
  func.return %d : tensor<4096x64x128xf32>
}
// CHECK:      remark: [explain-fusion] no-fuse: 'graph.abs' not fused with 'graph.exp' {{.*}}'graph.exp' carries the directive no_fuse (otherwise with: remove no_fuse)
// CHECK-NEXT: remark: [explain-fusion] stop-fusion: 'graph.tanh' not fused with 'graph.abs' {{.*}}'graph.abs' carries the directive stop_fusion (otherwise with: remove stop_fusion)
// CHECK-NEXT: remark: [explain-fusion] recompute: 'graph.add' not fused with 'graph.tanh' {{.*}}20 operations would run 33554432 times instead of 8192; cheaper stored and read again (otherwise with: at most 12 operations before the broadcast)

// -----

// Not: what is in one kernel.
func.func @fused(%x: tensor<64x128xf32>) -> tensor<64xf32> {
  %a = graph.exp %x {fuse_group = "g"} : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %s = graph.sum %a {axes = array<i64: 1>} : (tensor<64x128xf32>) -> tensor<64xf32>
  func.return %s : tensor<64xf32>
}
// CHECK-NOT: [explain-fusion]
