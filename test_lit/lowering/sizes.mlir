// RUN: fuse-opt %s --sizes --default | filecheck %s
// RUN: fuse-opt %s --sizes --extents m=7,n=100 --default | filecheck %s --check-prefix CHOSEN
// RUN: fuse-opt %s --sizes --extents m=7,n=100 --default -t html | filecheck %s --check-prefix PICTURE
// RUN: fuse-opt %s --sizes --default -t html | filecheck %s --check-prefix PAGE
// RUN: fuse-opt %s --sizes --default -t c | filecheck %s --check-prefix TEXT
// RUN: fuse-opt %s --sizes --default -t cuda | filecheck %s --check-prefix CUDA
// RUN: fuse-opt %s --sizes --extents m=7,n=100 --default -t cuda | filecheck %s --check-prefix NUMBERS

// Decisions for all extents, and how they look at some.

// CHECK: attributes {fused.arena = {method = "universal", alignment = 64 : i64, places = [#graph.size<4*m*n>, #graph.size<4*m>], orders = [array<i64: 0, 1>]
// CHECK: -> (tensor<?x?xf32, #graph.shape<m, n>>, tensor<?x1xf32, #graph.shape<m, 1>>) attributes {schedule = {kind = "row"}, slots = array<i64: 0, 1>
// CHOSEN: attributes {fused.arena = {method = "universal", alignment = 64 : i64, lower_bound = 2880 : i64, size = 2880 : i64}}
// CHOSEN: -> (tensor<7x100xf32>, tensor<7x1xf32>) attributes {schedule = {kind = "row"}, slots = array<i64: 0, 2816>
// PICTURE: arena 2,880 bytes, lower bound 2,880 bytes (no plan can be smaller)
// PICTURE: 28 bytes at 2,816
// PAGE: 2 kernels of 14 ops, 0 library calls; 12*m*n + 4*m bytes read, 8*m*n + 4*m bytes written by kernels
// CUDA: kernel_max_subtract_exp_sum(const float *__restrict__ x
// CUDA-NEXT: int n)
// CUDA: // arena arena: i8 ["arena bytes"], at a multiple of 256 bytes
// CUDA: //   kernel_max_subtract_exp_sum<<<(((m + 31) floordiv 32)*min(1, max(-n + 65, 0)), 1, 1), (8, 32,
// CUDA: //   kernel_max_subtract_exp_sum_2<<<(m*min(1, max(0, n - 512)), 1, 1), (256, 1, 1)>>>(x, arena +
// NUMBERS-NOT: int n
// NUMBERS: kernel_max_subtract_exp_sum<<<(
// TEXT: static void kernel_max_subtract_exp_sum(const float *restrict x, float *restrict arg0, float *restrict arg1,

func.func @main(%x: tensor<?x?xf32> {graph.dims = ["m", "n"]}, %y: tensor<?x?xf32> {graph.dims = ["n", "m"]}) -> tensor<?x?xf32> {
  %1 = graph.softmax %x : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %t = graph.permute_dims %1 {axes = array<i64: 1, 0>} : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %a = graph.add %t, %y : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = graph.softmax %a : (tensor<?x?xf32>) -> tensor<?x?xf32>
  func.return %s : tensor<?x?xf32>
}
