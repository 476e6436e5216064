// RUN: fuse-opt %s --fuse-elementwise -t dot | filecheck %s --check-prefix=DOT
// RUN: fuse-opt %s --fuse-elementwise -t json | filecheck %s --check-prefix=JSON
// RUN: fuse-opt %s --default -t c | filecheck %s --check-prefix=C
// RUN: not fuse-opt %s -t c 2>&1 | filecheck %s --check-prefix=UNWRAPPED

// DOT: digraph program {
// DOT: label = "@main";
// DOT: arg_{{[0-9]+}} [shape = ellipse, label = "%x"];
// DOT: label = "fused.kernel";
// DOT: op_{{[0-9]+}} [label = "graph.exp"];
// DOT: -> op_{{[0-9]+}} [label = "%{{.*}}: tensor<4x8xf32>"];

// JSON: "functions": [
// JSON: "name": "main"
// JSON: "op": "fused.kernel"
// JSON: "op": "graph.exp"

// C: exp
// C: graph.exp

// UNWRAPPED: targets.mlir:{{[0-9]+}}:3: error: {{.*}}wrap-kernels

func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = graph.exp %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = graph.abs %0 : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %1 : tensor<4x8xf32>
}
