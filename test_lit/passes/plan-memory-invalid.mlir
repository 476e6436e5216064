// RUN: not fuse-opt %s --plan-memory=alignment=48 2>&1 | filecheck %s --check-prefix=ALIGNMENT
// RUN: not fuse-opt %s --plan-memory=strategy=best 2>&1 | filecheck %s --check-prefix=STRATEGY

// ALIGNMENT: error: 'plan-memory' option alignment must be a power of two from 8 bytes on, got 48
// STRATEGY: error: 'plan-memory' option strategy: unknown 'best'; use one of auto,
func.func @main(%x: tensor<16xf32>) -> tensor<16xf32> {
  func.return %x : tensor<16xf32>
}
