// RUN: fuse-opt %s --sizes --pack-weights | filecheck %s
// RUN: fuse-opt %s --sizes --pack-weights --pack-weights | filecheck %s
// RUN: fuse-opt %s --sizes --pack-weights=device=avx2 | filecheck %s --check-prefix=NARROW
// RUN: fuse-opt %s --pack-weights | filecheck %s --check-prefix=UNASKED

// Rows that are a size are as many as are likely: panels are as wide as for these. Columns that are one are not packed.
// CHECK-LABEL: func.func @sized(
// CHECK-SAME:      %w_packed: tensor<2x300x64xf32> {graph.prepared = @sized.prepare}
// CHECK:         fused.kernel(%a = %x{{.*}}, %w_packed_1 = %w_packed
// CHECK:         fused.kernel(%a = %y{{.*}}, %b = %v
// UNASKED-NOT:  _packed
// NARROW-LABEL: func.func @sized(
// NARROW-SAME:     %w_packed: tensor<7x300x16xf32>
func.func @sized(%x: tensor<?x300xf32, #graph.shape<n{least = 2, typical = 64}, 300>>, %y: tensor<40x300xf32>, %w: tensor<300x100xf32> {graph.frozen}, %v: tensor<300x?xf32, #graph.shape<300, m>> {graph.frozen}) -> (tensor<?x100xf32, #graph.shape<n{least = 2, typical = 64}, 100>>, tensor<40x?xf32, #graph.shape<40, m>>) {
  %0 = fused.kernel(%a = %x : tensor<?x300xf32, #graph.shape<n{least = 2, typical = 64}, 300>>, %b = %w : tensor<300x100xf32>) -> (tensor<?x100xf32, #graph.shape<n{least = 2, typical = 64}, 100>>) {
    %p = graph.matmul %a, %b : (tensor<?x300xf32, #graph.shape<n{least = 2, typical = 64}, 300>>, tensor<300x100xf32>) -> tensor<?x100xf32, #graph.shape<n{least = 2, typical = 64}, 100>>
    fused.yield %p : tensor<?x100xf32, #graph.shape<n{least = 2, typical = 64}, 100>>
  }
  %1 = fused.kernel(%a = %y : tensor<40x300xf32>, %b = %v : tensor<300x?xf32, #graph.shape<300, m>>) -> (tensor<40x?xf32, #graph.shape<40, m>>) {
    %p = graph.matmul %a, %b : (tensor<40x300xf32>, tensor<300x?xf32, #graph.shape<300, m>>) -> tensor<40x?xf32, #graph.shape<40, m>>
    fused.yield %p : tensor<40x?xf32, #graph.shape<40, m>>
  }
  func.return %0, %1 : tensor<?x100xf32, #graph.shape<n{least = 2, typical = 64}, 100>>, tensor<40x?xf32, #graph.shape<40, m>>
}

// Filters of images of any extents, for narrow vectors: those of the second would fill half of a panel, and windows of one element
// of the third find all of them in a first cache.
// CHECK-LABEL: func.func @images(
// CHECK-NOT:     _packed
// NARROW-LABEL: func.func @images(
// NARROW-SAME:     %w: tensor<96x32x5x5xf32> {graph.frozen}, %v: tensor<24x32x5x5xf32> {graph.frozen}, %u: tensor<96x32x1x1xf32> {graph.frozen}, %w_packed: tensor<6x800x16xf32>
// NARROW:        fused.kernel(%a = %x{{.*}}, %w_packed_1 = %w_packed
// NARROW:          graph.conv %a, %{{.*}} {pads = array<i64: 2, 2, 2, 2>}
// NARROW:        fused.kernel(%a = %x{{.*}}, %b = %v
// NARROW:        fused.kernel(%a = %x{{.*}}, %b = %u
func.func @images(%x: tensor<1x32x?x?xf32, #graph.shape<1, 32, h, w>>, %w: tensor<96x32x5x5xf32> {graph.frozen}, %v: tensor<24x32x5x5xf32> {graph.frozen}, %u: tensor<96x32x1x1xf32> {graph.frozen}) -> (tensor<1x96x?x?xf32, #graph.shape<1, 96, h, w>>, tensor<1x24x?x?xf32, #graph.shape<1, 24, h, w>>, tensor<1x96x?x?xf32, #graph.shape<1, 96, h, w>>) {
  %0 = fused.kernel(%a = %x : tensor<1x32x?x?xf32, #graph.shape<1, 32, h, w>>, %b = %w : tensor<96x32x5x5xf32>) -> (tensor<1x96x?x?xf32, #graph.shape<1, 96, h, w>>) {
    %p = graph.conv %a, %b {pads = array<i64: 2, 2, 2, 2>} : (tensor<1x32x?x?xf32, #graph.shape<1, 32, h, w>>, tensor<96x32x5x5xf32>) -> tensor<1x96x?x?xf32, #graph.shape<1, 96, h, w>>
    fused.yield %p : tensor<1x96x?x?xf32, #graph.shape<1, 96, h, w>>
  }
  %1 = fused.kernel(%a = %x : tensor<1x32x?x?xf32, #graph.shape<1, 32, h, w>>, %b = %v : tensor<24x32x5x5xf32>) -> (tensor<1x24x?x?xf32, #graph.shape<1, 24, h, w>>) {
    %p = graph.conv %a, %b {pads = array<i64: 2, 2, 2, 2>} : (tensor<1x32x?x?xf32, #graph.shape<1, 32, h, w>>, tensor<24x32x5x5xf32>) -> tensor<1x24x?x?xf32, #graph.shape<1, 24, h, w>>
    fused.yield %p : tensor<1x24x?x?xf32, #graph.shape<1, 24, h, w>>
  }
  %2 = fused.kernel(%a = %x : tensor<1x32x?x?xf32, #graph.shape<1, 32, h, w>>, %b = %u : tensor<96x32x1x1xf32>) -> (tensor<1x96x?x?xf32, #graph.shape<1, 96, h, w>>) {
    %p = graph.conv %a, %b : (tensor<1x32x?x?xf32, #graph.shape<1, 32, h, w>>, tensor<96x32x1x1xf32>) -> tensor<1x96x?x?xf32, #graph.shape<1, 96, h, w>>
    fused.yield %p : tensor<1x96x?x?xf32, #graph.shape<1, 96, h, w>>
  }
  func.return %0, %1, %2 : tensor<1x96x?x?xf32, #graph.shape<1, 96, h, w>>, tensor<1x24x?x?xf32, #graph.shape<1, 24, h, w>>, tensor<1x96x?x?xf32, #graph.shape<1, 96, h, w>>
}
