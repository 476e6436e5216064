// RUN: fuse-opt %s --split-input-file --select-implementation=device=h100 | filecheck %s
// RUN: fuse-opt %s --split-input-file --select-implementation=device=h100 --select-implementation=device=a100 | filecheck %s
// RUN: fuse-opt %s --split-input-file --gpu-attach-device --select-implementation | filecheck %s
// RUN: fuse-opt %s --split-input-file --select-implementation=device=h100 --select-implementation | filecheck %s --check-prefix=CPU
// RUN: fuse-opt %s --split-input-file --select-implementation=device=h100 --remarks 2>&1 | filecheck %s --check-prefix=REMARK
// RUN: fuse-opt %s --split-input-file --select-implementation=device=h100,numerics=fast,prefer=cublas.matmul_fast | filecheck %s --check-prefix=FAST
// RUN: fuse-opt %s --split-input-file --gpu-attach-device --attach-backends=backends=-cublas --select-implementation --remarks 2>&1 | filecheck %s --check-prefix=WITHOUT

// What is made for a GPU is run by what its platform has, with a workspace of the plan's; a choice of the other platform is made
// anew. A workspace is room for 32 partial sums of the result, and 64 KiB.
// CHECK-LABEL: func.func @main(
// CHECK:         attributes {implementation = "cublas.matmul", workspace = 67776 : i64} {
// CPU-LABEL: func.func @main(
// CPU:         attributes {implementation = "fuse.matmul"} {
// FAST-LABEL: func.func @main(
// FAST:         attributes {implementation = "cublas.matmul_fast", workspace = 67776 : i64} {
// REMARK: selected: 'fused.kernel' 'graph.matmul': run by "cublas.matmul" us=2.5 {{.*}}cublas.matmul_fast:numerics{{.*}} workspace=67776
// WITHOUT: host: 'fused.kernel' 'graph.matmul' runs on the host, between copies: no implementation takes it on the device (otherwise with: a backend that does, or other types) bytes=128 refused=
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %a = fused.kernel(%0 = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {implementation = "blas.matmul"} {
    %1 = graph.matmul %0, %0 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %1 : tensor<4x4xf32>
  }
  func.return %a : tensor<4x4xf32>
}

// -----

// Not: what no implementation takes on the device. The kernel names nothing, and the host runs it.
// CHECK-LABEL: func.func @host(
// CHECK:         -> (tensor<4x4xi32>) {
// CPU-LABEL: func.func @host(
// CPU:         attributes {implementation = "numpy.matmul"} {
// REMARK: host: 'fused.kernel' 'graph.matmul' runs on the host{{.*}}cublas.matmul:dtype
func.func @host(%x: tensor<4x4xi32>) -> tensor<4x4xi32> {
  %a = fused.kernel(%0 = %x : tensor<4x4xi32>) -> (tensor<4x4xi32>) attributes {implementation = "numpy.matmul"} {
    %1 = graph.matmul %0, %0 : (tensor<4x4xi32>, tensor<4x4xi32>) -> tensor<4x4xi32>
    fused.yield %1 : tensor<4x4xi32>
  }
  func.return %a : tensor<4x4xi32>
}
