// RUN: fuse-opt %s --split-input-file --attach-backends=unavailable=blas --select-implementation --remarks 2>&1 | filecheck %s
// RUN: fuse-opt %s --split-input-file --gpu-attach-device --select-implementation --remarks 2>&1 | filecheck %s --check-prefix=HOST

// What the remarks of choices say beside what was selected: see select-implementation.mlir for that.

// CHECK: remark: [attach-backends] unavailable: {{.*}}backend 'blas' cannot be used here; naming it says why
// CHECK: remark: [select-implementation] selected: {{.*}}'graph.matmul': run by "fuse.matmul"{{.*}}us={{[0-9.]+}} second={{.*}} second_us={{[0-9.]+}} candidates=2 gops=860.0
func.func @selected(%x: tensor<32x64xf32>, %w: tensor<64x48xf32>) -> tensor<32x48xf32> {
  %0 = fused.kernel(%a = %x : tensor<32x64xf32>, %b = %w : tensor<64x48xf32>) -> (tensor<32x48xf32>) {
    %1 = graph.matmul %a, %b : (tensor<32x64xf32>, tensor<64x48xf32>) -> tensor<32x48xf32>
    fused.yield %1 : tensor<32x48xf32>
  }
  func.return %0 : tensor<32x48xf32>
}

// -----

// CHECK: remark: [select-implementation] several-ops: {{.*}}has 2 opaque ops, and nothing runs them together: it runs op by op
func.func @several(%x: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %0:2 = fused.kernel(%a = %x : tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
    %1 = graph.sort %a {axis = 0 : i64} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %2 = graph.sort %a {axis = 1 : i64} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    fused.yield %1, %2 : tensor<8x8xf32>, tensor<8x8xf32>
  }
  func.return %0#0, %0#1 : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// CHECK: remark: [select-implementation] selected: {{.*}}run by "numpy.matmul" us={{.*}} refused=fuse.matmul:element-type gops=1.0
// HOST: remark: [select-implementation] host: {{.*}}'graph.matmul' runs on the host, between copies: no implementation takes it on the device
func.func @host(%x: tensor<32x64xi16>, %w: tensor<64x48xi16>) -> tensor<32x48xi16> {
  %0 = fused.kernel(%a = %x : tensor<32x64xi16>, %b = %w : tensor<64x48xi16>) -> (tensor<32x48xi16>) {
    %1 = graph.matmul %a, %b : (tensor<32x64xi16>, tensor<64x48xi16>) -> tensor<32x48xi16>
    fused.yield %1 : tensor<32x48xi16>
  }
  func.return %0 : tensor<32x48xi16>
}
