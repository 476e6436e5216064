// RUN: not fuse-opt %s --plan-memory=alignment=48 2>&1 | filecheck %s --check-prefix=ALIGNMENT
// RUN: not fuse-opt %s --plan-memory=strategy=best 2>&1 | filecheck %s --check-prefix=STRATEGY

// ALIGNMENT: error: pass 'plan-memory': option 'alignment': expected a power of two from 8 bytes on, got 48
// STRATEGY: error: pass 'plan-memory': option 'strategy': expected one of auto,
func.func @main(%x: tensor<16xf32>) -> tensor<16xf32> {
  func.return %x : tensor<16xf32>
}
