// RUN: fuse-opt %s --plan-memory --select-implementation=prefer=numpy | filecheck %s

// What another implementation asked for goes with its name.
// CHECK-LABEL: func.func @alone
// CHECK:         attributes {implementation = "numpy.sort"} {
func.func @alone(%x: tensor<16xf32>) -> tensor<16xf32> {
  %a = fused.kernel(%0 = %x : tensor<16xf32>) -> (tensor<16xf32>) attributes {implementation = "numpy.sort", workspace = 100 : i64} {
    %1 = graph.sort %0 : (tensor<16xf32>) -> tensor<16xf32>
    fused.yield %1 : tensor<16xf32>
  }
  func.return %a : tensor<16xf32>
}
