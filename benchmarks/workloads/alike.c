// How a processor of x86 is at the start of a process, as to numbers: all exceptions masked, to nearest, denormal numbers kept.
void alike(void) {
  __builtin_ia32_ldmxcsr(0x1f80);
}
