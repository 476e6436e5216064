"""A C++ compiler that parses Boost's headers once in the build of PyCUDA, in which 40 files include them.

python -S -E precompiling.py FOLDER g++ ARGUMENT...   # FOLDER keeps the parsed headers
"""

import os
import subprocess
import sys

HEADER = "#include <boost/python.hpp>\n"


def main(folder: str, command: list[str]) -> int:
    if "-c" in command and "boost=pycudaboost" in " ".join(command):
        header = os.path.join(folder, "all.hpp")
        if not os.path.exists(folder):
            os.mkdir(folder)
            with open(header, "w") as file:
                file.write(HEADER)
            at = command.index("-c")
            flags = command[:at] + [word for word in command[at + 2 :] if word != "-o" and not word.endswith(".o")]
            # What cannot be parsed beforehand is included as it is.
            subprocess.call([*flags, "-x", "c++-header", header, "-o", f"{header}.gch"], stderr=subprocess.DEVNULL)
        if os.path.exists(f"{header}.gch"):
            command = [*command, "-include", header]
    return subprocess.call(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
