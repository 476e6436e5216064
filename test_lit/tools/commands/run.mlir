// RUN: fuse-run %s --target reference --check | filecheck %s
// RUN: fuse-run %s --target reference --repeat 2 --stats json | filecheck %s --check-prefix=JSON

// CHECK: target: reference
// CHECK: check: passed, error 0.0

// JSON: "target": "reference"
// JSON-SAME: "seconds": {"calls": 2

func.func @main(%x: tensor<4x8xf32> {graph.range = [0.5 : f64, 1.5 : f64]}) -> tensor<4x8xf32> {
  %0 = graph.log %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %0 : tensor<4x8xf32>
}
