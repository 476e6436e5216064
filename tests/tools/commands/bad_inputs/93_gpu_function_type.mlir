// gpu.return in a function without a type
"gpu.module"() ({
  "gpu.func"() ({
    "gpu.return"() : () -> ()
  }) {sym_name = "f", kernel} : () -> ()
}) {sym_name = "m"} : () -> ()
