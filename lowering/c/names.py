"""Names and comments of generated C: whatever the IR calls a thing, its identifier is legal, unreserved and unique.

No text of the IR reaches C but through this file: identifiers by `NameScope.fresh` and `global_identifier`, comments by
`comment_lines`.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Iterable

_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class co_await
co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do
double dynamic_cast else enum explicit export extern false float for fortran friend goto if import inline int long
module mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch template
this thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using virtual void volatile
wchar_t while xor xor_eq
"""

_MACROS = "NULL EOF INFINITY NAN HUGE_VAL I complex imaginary assert errno linux unix i386 stdin stdout stderr"

_CUDA = "threadIdx blockIdx blockDim gridDim warpSize half half2 nv_bfloat16 dim3 uint3 min max omp_in omp_out omp_priv omp_orig"

_MATH = """
abs acos acosh asin asinh atan atan2 atanh cabs cacos cacosh carg casin casinh catan catanh cbrt ccos ccosh ceil cexp
cimag clog conj copysign cos cosh cpow cproj creal csin csinh csqrt ctan ctanh drem erf erfc erfcinv erfcx erfinv exp
exp10 exp2 expm1 fabs fdim fdivide floor fma fmax fmin fmod frexp gamma hypot ilogb j0 j1 jn ldexp lgamma llrint llround
log log10 log1p log2 logb lrint lround modf nan nearbyint nextafter nexttoward norm3d norm4d normcdf normcdfinv pow
pow10 rcbrt remainder remquo rhypot rint rnorm3d round roundeven rsqrt scalb scalbln scalbn significand sin sincos
sincospi sinh sinpi sqrt tan tanh tgamma trunc y0 y1 yn
"""

_LIBRARY = """
abort accept access aligned_alloc alloca asctime atexit atof atoi atol atoll bcmp bcopy bind bsearch bzero calloc chdir
chmod chown clearerr clock close closedir connect creat ctime daemon dcgettext dgettext difftime div dup dup2 environ
execl execle execlp execv execve execvp exit fclose fcntl feof ferror fflush ffs ffsl ffsll fgetc fgets fileno fopen
fork fprintf fprintf_unlocked fputc fputs fputs_unlocked fread free freopen fscanf fseek fstat ftell ftruncate fwrite
fwrite_unlocked gamma_r gammaf_r gammal_r getc getchar getenv getpid gets gettext gettimeofday gmtime imaxabs index
ioctl isalnum isalpha isascii isatty isblank iscntrl isdigit isgraph islower isprint ispunct isspace isupper iswalnum
iswalpha iswblank iswcntrl iswdigit iswgraph iswlower iswprint iswpunct iswspace iswupper iswxdigit isxdigit kill labs
ldiv lgamma_r lgammaf_r lgammal_r link listen llabs lldiv localtime longjmp lseek lstat main malloc memalign memchr
memcmp memcpy memmove mempcpy memset mkdir mktime mmap mprotect munmap nanosleep nice open opendir pause perror pipe poll
posix_memalign printf printf_unlocked putc putchar putchar_unlocked puts puts_unlocked qsort raise rand random read
readdir realloc recv remove rename rewind rindex rmdir sbrk scanf select send setbuf setjmp setlocale setvbuf shutdown
signal signbit sleep snprintf socket sprintf srand sscanf stat stpcpy stpncpy strcasecmp strcat strchr strcmp strcoll
strcpy strcspn strdup strerror strfmon strftime strlen strncasecmp strncat strncmp strncpy strndup strnlen strpbrk
strrchr strspn strstr strtod strtof strtok strtol strtold strtoll strtoul strtoull strxfrm sync system time times
tmpfile tmpnam toascii tolower toupper towlower towupper truncate umask uname ungetc unlink usleep va_arg va_copy va_end
va_start vfprintf vfscanf vprintf vscanf vsnprintf vsprintf vsscanf wait wcscat wcscpy wcslen wmemcpy write
"""

RESERVED: frozenset[str] = frozenset(
    [
        *(_KEYWORDS + _MACROS + " " + _CUDA + _LIBRARY).split(),
        *(stem + suffix for stem in _MATH.split() for suffix in ("", "f", "l")),
    ]
)
"""Keywords of C and C++, predefined macros, CUDA's variables, and functions compilers and C libraries know by name."""

_TAKEN_PREFIX = re.compile(r"(fo|omp|cuda|cu)_")
_LONGEST = 60


def _is_reserved(name: str) -> bool:
    return name in RESERVED or name.endswith("_t")


def sanitise(name: str, fallback: str = "v") -> str:
    """A legal C identifier that resembles the name, without leading or doubled underscores and not too long.

    It may still be reserved or taken, but no longer so with a number behind it."""
    text = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:_LONGEST].rstrip("_")
    if not text:
        return fallback
    if _TAKEN_PREFIX.match(text):
        return f"{fallback}_{text}"
    return f"{fallback}{text}" if text[0].isdigit() else text


def global_identifier(name: str) -> str:
    """The C name of a function: the IR's name where that is a usable identifier, else one with a digest of it.

    It depends on the name alone, so that callers, definitions and runtimes agree without sharing a table."""
    text = sanitise(name, "k")
    if text == name and not _is_reserved(text):
        return text
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{text[: _LONGEST - 9].rstrip('_')}_{digest}"


class NameScope:
    """The identifiers of one function."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def fresh(self, hint: str | None, fallback: str = "v") -> str:
        """A new identifier after the hint; values without a hint are numbered after the fallback."""
        base = sanitise(hint or "", fallback)
        if hint and base not in self._taken and not _is_reserved(base):
            self._taken.add(base)
            return base
        joint = "_" if hint else ""
        number = self._next.get(base, 1 if hint else 0)
        while (name := f"{base}{joint}{number}") in self._taken or _is_reserved(name):
            number += 1
        self._next[base] = number + 1
        self._taken.add(name)
        return name


def comment_lines(text: str, width: int = 96) -> list[str]:
    """The text as `//` comments in plain ASCII that no `*/`, backslash, newline or trigraph can leave."""
    lines: list[str] = []
    for line in text.splitlines():
        plain = "".join(c if " " <= c <= "~" else " " if c == "\t" else f"<U+{ord(c):04X}>" for c in line)
        plain = plain.replace("\\", "|").replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?").rstrip()
        lines += textwrap.wrap(plain, width, subsequent_indent="  ") or [""]
    return [f"// {line}".rstrip() for line in lines]
