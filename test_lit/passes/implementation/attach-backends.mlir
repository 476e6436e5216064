// RUN: fuse-opt %s --split-input-file --verify-diagnostics --attach-backends=backends=-fuse | filecheck %s
// RUN: fuse-opt %s --split-input-file --verify-diagnostics --attach-backends=backends=none,numpy --fuse-epilogue --wrap-kernels --select-implementation | filecheck %s --check-prefix=CALLED
// RUN: fuse-opt %s --split-input-file --verify-diagnostics --attach-backends=backends=none --wrap-kernels --select-implementation | filecheck %s --check-prefix=NONE
// RUN: fuse-opt %s --split-input-file --verify-diagnostics --attach-backends=backends=-fuse,fuse | filecheck %s --check-prefix=ALL
// RUN: fuse-opt %s --attach-backends=backends=none,numpy,blas --attach-backends=unavailable=blas --fuse-epilogue --wrap-kernels --select-implementation | filecheck %s --check-prefix=CALLED
// RUN: fuse-opt %s --split-input-file --verify-diagnostics --attach-backends=backends=-mkl | filecheck %s --check-prefix=UNKNOWN

// The list is on the module; fusion and the choice ask it. Where all are left, nothing is written.
// CHECK: builtin.module attributes {graph.backends = ["aten", "blas", "cublas", {{.*}}"numpy"]} {
// CALLED: builtin.module attributes {graph.backends = ["numpy"]} {
// CALLED: fused.kernel{{.*}} attributes {implementation = "numpy.matmul"} {
// CALLED-NEXT: graph.matmul
// CALLED-NEXT: fused.yield
// NONE: error: 'graph.matmul' of tensor<4x4xf32>, tensor<4x4xf32>: no implementation runs it: none is allowed; allow a backend that does, or cast or reshape what it gets
// ALL: builtin.module {
// UNKNOWN: error: 'attach-backends' option backends: unknown backend 'mkl'; expected one of aten, blas, cublas, {{.*}}fuse, gpu, numpy, onednn, 'reference' or 'none'
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = graph.matmul %x, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = graph.exp %0 : (tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %1 : tensor<4x4xf32>
}
