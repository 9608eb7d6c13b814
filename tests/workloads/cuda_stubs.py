"""Empty CUDA libraries, so that torch from the package index imports on a machine without CUDA.

Usage: cuda_stubs.py TORCH_LIB_FOLDER OUT_FOLDER

Owns: finding the libraries and symbols that torch's own libraries need, and an assembler stub for each. Because: the
CPU code in that wheel is what users run, while its CUDA packages are several gigabytes that a CPU never calls. Every
stub returns 999 (`cudaErrorUnknown`), so torch reports that there is no device. Put OUT_FOLDER into LD_LIBRARY_PATH.
"""

import collections
import pathlib
import re
import subprocess
import sys

WANTED = re.compile(r"lib(cu|nv|nccl)")
# Libraries whose symbols carry no version: recognized by the prefix of their names.
UNVERSIONED = {
    "libnccl.so": "nccl",
    "libcusparseLt.so": "cusparseLt",
    "libcufile.so": "cuFile",
    "libcuda.so": "cu[A-Z]",
    "libcusolver.so": "cusolver",
}


def said(*command):
    """The lines that a tool prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def survey(folder):
    """Needed libraries, the library of each symbol version, and the undefined symbols of each version."""
    files = sorted(folder.glob("*.so*"))
    present = {file.name for file in files}
    needed, owner, symbols = set(), {}, collections.defaultdict(set)
    for file in files:
        for line in said("readelf", "-dW", file):
            match = re.search(r"NEEDED.*\[(.*)\]", line)
            if match and match[1] not in present and WANTED.match(match[1]):
                needed.add(match[1])
        library = None
        for line in said("readelf", "-VW", file):
            if match := re.search(r"File: (\S+)", line):
                library = match[1]
            elif library and (match := re.search(r"Name: (\S+)\s+Flags", line)):
                owner[match[1]] = library
        for line in said("nm", "-D", "--undefined-only", file):
            name, _, version = line.split()[-1].partition("@")
            symbols[version].add(name)
    return needed, owner, symbols


def build(out, library, version, names):
    """Assemble one stub."""
    labels = "".join(f".globl {name}\n.type {name},@function\n{name}:\n" for name in sorted(names))
    source, script = out / "stub.s", out / "stub.map"
    source.write_text(f'.text\n{labels}mov $999,%eax\nret\n.section .note.GNU-stack,"",@progbits\n')
    script.write_text(f"{version} {{ global: *; }};\n")
    link = ["gcc", "-shared", "-nostdlib", f"-Wl,-soname,{library}", f"-Wl,--version-script,{script}"]
    subprocess.run([*link, "-o", out / library, source], check=True)
    source.unlink()
    script.unlink()


def main():
    """Scan the libraries, then build every stub."""
    folder, out = map(pathlib.Path, sys.argv[1:3])
    out.mkdir(parents=True, exist_ok=True)
    needed, owner, symbols = survey(folder)
    for library in sorted(needed):
        versions = [version for version, holder in owner.items() if holder == library]
        names = set().union(*(symbols[version] for version in versions))
        if not versions:
            begin = next((UNVERSIONED[stem] for stem in UNVERSIONED if library.startswith(stem)), None)
            names = {name for name in symbols[""] if begin and re.match(begin, name)}
        build(out, library, versions[0] if versions else library, names)
    print(f"{len(needed)} stubs in {out}")


if __name__ == "__main__":
    main()
