// RUN: fuse-opt %s --split-input-file --wrap-kernels --plan-memory | filecheck %s
// RUN: fuse-opt %s --split-input-file --wrap-kernels --plan-memory --plan-memory | filecheck %s
// RUN: fuse-opt %s --split-input-file --wrap-kernels --plan-memory=alignment=256 | filecheck %s --check-prefix=WIDE

// %a and %c take turns in one place; what is returned lives in the caller's buffer.
// CHECK-LABEL: func.func @turns
// CHECK-SAME:    attributes {fused.arena = {alignment = 64 : i64, lower_bound = 128 : i64, method = "{{.*}}", size = 128 : i64}}
// CHECK:         %a = fused.kernel({{.*}} attributes {slots = array<i64: [[A:[0-9]+]]>} {
// CHECK:         %b = fused.kernel({{.*}} attributes {slots = array<i64: [[B:[0-9]+]]>} {
// CHECK:         %c = fused.kernel({{.*}} attributes {slots = array<i64: [[A]]>} {
// CHECK:         %d = fused.kernel({{.*}} attributes {slots = array<i64: -1>} {
// WIDE-LABEL:  func.func @turns
// WIDE-SAME:     alignment = 256 : i64, lower_bound = 512 : i64
func.func @turns(%x: tensor<16xf32>) -> tensor<16xf32> {
  %a = graph.exp %x : (tensor<16xf32>) -> tensor<16xf32>
  %b = graph.sin %a : (tensor<16xf32>) -> tensor<16xf32>
  %c = graph.exp %b : (tensor<16xf32>) -> tensor<16xf32>
  %d = graph.sin %c : (tensor<16xf32>) -> tensor<16xf32>
  func.return %d : tensor<16xf32>
}

// -----

// A view keeps its operand's storage in use: %b must not take its place.
// CHECK-LABEL: func.func @view
// CHECK-SAME:    lower_bound = 192 : i64
func.func @view(%x: tensor<16xf32>) -> tensor<4x4xf32> {
  %a = graph.exp %x : (tensor<16xf32>) -> tensor<16xf32>
  %v = graph.reshape %a {shape = array<i64: 4, 4>} : (tensor<16xf32>) -> tensor<4x4xf32>
  %b = graph.sin %x : (tensor<16xf32>) -> tensor<16xf32>
  %c = graph.exp %b : (tensor<16xf32>) -> tensor<16xf32>
  %w = graph.reshape %c {shape = array<i64: 4, 4>} : (tensor<16xf32>) -> tensor<4x4xf32>
  %d = graph.add %v, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %d : tensor<4x4xf32>
}

// -----

// An in-place pair that does not hold (any more) is dropped: %a is read later.
// CHECK-LABEL: func.func @stale
// CHECK-NOT:     inplace
func.func @stale(%x: tensor<16xf32>) -> tensor<16xf32> {
  %a = fused.kernel(%0 = %x : tensor<16xf32>) -> (tensor<16xf32>) {
    %1 = graph.exp %0 : (tensor<16xf32>) -> tensor<16xf32>
    fused.yield %1 : tensor<16xf32>
  }
  %b = fused.kernel(%0 = %a : tensor<16xf32>) -> (tensor<16xf32>) attributes {inplace = array<i64: 0, 0>} {
    %1 = graph.exp %0 : (tensor<16xf32>) -> tensor<16xf32>
    fused.yield %1 : tensor<16xf32>
  }
  %c = graph.add %a, %b : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  func.return %c : tensor<16xf32>
}

// -----

// Nothing to plan, nothing changed.
// CHECK-LABEL: func.func @nothing(%x: tensor<16xf32>) -> tensor<16xf32> {
// CHECK-NOT:     fused.arena
func.func @nothing(%x: tensor<16xf32>) -> tensor<16xf32> {
  func.return %x : tensor<16xf32>
}

// -----

// Without --sizes, extents of a name are as unknown as `?` alone: such results have memory of their own.
// CHECK-LABEL: func.func @unasked
// CHECK-SAME:    size = 0 : i64
// CHECK:         slots = array<i64: -1>
// CHECK:         slots = array<i64: -1>
func.func @unasked(%x: tensor<?xf32, #graph.shape<n>>) -> tensor<?xf32, #graph.shape<n>> {
  %a = graph.exp %x : (tensor<?xf32, #graph.shape<n>>) -> tensor<?xf32, #graph.shape<n>>
  %b = graph.exp %a : (tensor<?xf32, #graph.shape<n>>) -> tensor<?xf32, #graph.shape<n>>
  func.return %b : tensor<?xf32, #graph.shape<n>>
}
