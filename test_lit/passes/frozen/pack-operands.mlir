// RUN: fuse-opt %s --split-input-file --backend=none,%S/Inputs/panels.py --pack-operands | filecheck %s
// RUN: fuse-opt %s --split-input-file --backend=none,%S/Inputs/panels.py --pack-operands --pack-operands --select-implementation | filecheck %s
// RUN: fuse-opt %s --split-input-file --backend=none,%S/Inputs/panels.py --pack-operands --remarks=- 2>&1 | filecheck %s --check-prefix=WHY

// A frozen operand is read in panels that the other function makes once, for two kernels; the workspace is that of the packed one.
// CHECK-LABEL: func.func @packed(
// CHECK-SAME:      %w: tensor<6x8xf32> {graph.frozen}, %w_packed: tensor<6x8xf32, #graph.panel<axis = 1, width = 4>> {graph.prepared = @packed.prepare})
// CHECK:         fused.kernel(%a = %x : tensor<2x6xf32>, %b = %w_packed : tensor<6x8xf32, #graph.panel<axis = 1, width = 4>>)
// CHECK-SAME:      implementation = "panels.matmul", workspace = 256 : i64
// CHECK-NEXT:      graph.matmul %a, %b : (tensor<2x6xf32>, tensor<6x8xf32, #graph.panel<axis = 1, width = 4>>)
// CHECK:         fused.kernel({{.*}} = %w_packed : tensor<6x8xf32, #graph.panel<axis = 1, width = 4>>)
// CHECK:       func.func private @packed.prepare(%w: tensor<6x8xf32>) -> tensor<6x8xf32, #graph.panel<axis = 1, width = 4>> {
// CHECK-NEXT:    fused.kernel
// CHECK-NEXT:      graph.to_layout
// CHECK-NEXT:      fused.yield
// CHECK-NEXT:    }
// CHECK-NEXT:    func.return
// WHY: packed: 'fused.kernel' reads operand 1 of 'graph.matmul' in panels that 'packed.prepare' makes bytes=192
func.func @packed(%x: tensor<2x6xf32>, %w: tensor<6x8xf32> {graph.frozen}) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
  %y = fused.kernel(%a = %x : tensor<2x6xf32>, %b = %w : tensor<6x8xf32>) -> (tensor<2x8xf32>) attributes {implementation = "panels.matmul", workspace = 64 : i64} {
    %p = graph.matmul %a, %b : (tensor<2x6xf32>, tensor<6x8xf32>) -> tensor<2x8xf32>
    fused.yield %p : tensor<2x8xf32>
  }
  %z = fused.kernel(%a = %x : tensor<2x6xf32>, %b = %w : tensor<6x8xf32>) -> (tensor<2x8xf32>) attributes {implementation = "panels.matmul", workspace = 64 : i64} {
    %p = graph.matmul %a, %b : (tensor<2x6xf32>, tensor<6x8xf32>) -> tensor<2x8xf32>
    fused.yield %p : tensor<2x8xf32>
  }
  func.return %y, %z : tensor<2x8xf32>, tensor<2x8xf32>
}

// -----

// Not what may change, what fills no panel, and what the implementation does not take so.
// CHECK-LABEL: func.func @stays(
// CHECK-NOT:     graph.panel
// CHECK-NOT:     graph.prepared
func.func @stays(%x: tensor<2x6xf32>, %w: tensor<6x8xf32>, %s: tensor<6x6xf32> {graph.frozen}, %u: tensor<2x5xf32>, %v: tensor<5x8xf32> {graph.frozen}) -> (tensor<2x8xf32>, tensor<2x6xf32>, tensor<2x8xf32>) {
  %y = fused.kernel(%a = %x : tensor<2x6xf32>, %b = %w : tensor<6x8xf32>) -> (tensor<2x8xf32>) attributes {implementation = "panels.matmul", workspace = 64 : i64} {
    %p = graph.matmul %a, %b : (tensor<2x6xf32>, tensor<6x8xf32>) -> tensor<2x8xf32>
    fused.yield %p : tensor<2x8xf32>
  }
  %z = fused.kernel(%a = %x : tensor<2x6xf32>, %b = %s : tensor<6x6xf32>) -> (tensor<2x6xf32>) attributes {implementation = "panels.matmul", workspace = 64 : i64} {
    %p = graph.matmul %a, %b : (tensor<2x6xf32>, tensor<6x6xf32>) -> tensor<2x6xf32>
    fused.yield %p : tensor<2x6xf32>
  }
  %q = fused.kernel(%a = %u : tensor<2x5xf32>, %b = %v : tensor<5x8xf32>) -> (tensor<2x8xf32>) attributes {implementation = "panels.matmul", workspace = 64 : i64} {
    %p = graph.matmul %a, %b : (tensor<2x5xf32>, tensor<5x8xf32>) -> tensor<2x8xf32>
    fused.yield %p : tensor<2x8xf32>
  }
  func.return %y, %z, %q : tensor<2x8xf32>, tensor<2x6xf32>, tensor<2x8xf32>
}
