// RUN: fuse-opt %s --gpu-attach-device=device=a100 | filecheck %s
// RUN: fuse-opt %s --gpu-attach-device=device=h100 --gpu-attach-device=device=a100 | filecheck %s
// RUN: fuse-opt %s --wrap-kernels --gpu-attach-device=device=a100 -t cuda | filecheck %s --check-prefix=A100
// RUN: fuse-opt %s --wrap-kernels --gpu-attach-device -t cuda | filecheck %s --check-prefix=H100

// The figures of the last device that was named; a row that does not fit its shared memory is read once for each stage.
// CHECK:      builtin.module attributes {fused.device = {
// CHECK-SAME:   processors = 108 : i64
// CHECK-SAME:   shared_memory = 166912 : i64
// A100: // schedule: row, stream: 1024 threads a row
// H100: // schedule: row, shared: 1024 threads a row
// H100: extern __shared__ __align__(1024) unsigned char shared_memory[];
// H100: <<<(256, 1, 1), (1024, 1, 1), {{[0-9]+}} bytes>>>
func.func @main(%x: tensor<256x50000xf32>) -> tensor<256x50000xf32> {
  %r = fused.kernel(%a = %x : tensor<256x50000xf32>) -> (tensor<256x50000xf32>) {
    %m = graph.max %a {axes = array<i64: 1>, keepdims = true} : (tensor<256x50000xf32>) -> tensor<256x1xf32>
    %s = graph.subtract %a, %m : (tensor<256x50000xf32>, tensor<256x1xf32>) -> tensor<256x50000xf32>
    fused.yield %s : tensor<256x50000xf32>
  }
  func.return %r : tensor<256x50000xf32>
}
