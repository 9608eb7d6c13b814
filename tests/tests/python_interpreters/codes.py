"""Prints every code object of large modules of the standard library, as the interpreter itself reads it.

One JSON list per line: address, argcount, kwonlyargcount, flags, first line, name, qualname, file,
[[offset, line or -1], ...] where the line changes (PyCode_Addr2Line at every instruction).
"""
import ctypes
import gc
import importlib
import json
import sys
import types

MODULES = """argparse ast asyncio asyncio.base_events collections concurrent.futures configparser copy ctypes
 dataclasses datetime decimal difflib dis doctest email.message enum fractions ftplib functools gettext heapq html.parser
 http.client http.server imaplib importlib.metadata inspect ipaddress json json.decoder logging mailbox mimetypes
 multiprocessing.pool optparse os pathlib pdb pickle pickletools platform plistlib pprint pydoc random re sched shlex
 shutil smtplib socket sqlite3 ssl statistics string subprocess symtable tarfile tempfile textwrap threading tokenize
 traceback turtle typing unittest unittest.mock urllib.parse urllib.request uuid weakref xml.dom.minidom
 xml.etree.ElementTree zipfile""".split()

exec(compile("def größe():\n  x = (1 +\n\n   2)\n  class Ünïcode:\n    def メソッド(self): pass\n  return Ünïcode\n",
             "/tmp/файл 🙀.py", "exec"))
exec(compile("def latin():\n  pass\n", "/tmp/é.py", "exec"))
exec(compile("def ascii():\n  pass\n" + "\n" * 70000 + "def far(): return [\n" + "\n" * 500 + "1]\n", "/tmp/a\tb.py", "exec"))

for module in MODULES:
    try:
        importlib.import_module(module)
    except Exception:
        pass

line_of = ctypes.pythonapi.PyCode_Addr2Line
line_of.argtypes = [ctypes.py_object, ctypes.c_int]
line_of.restype = ctypes.c_int

codes, queue = {}, [o.__code__ for o in gc.get_objects() if isinstance(o, types.FunctionType)]
queue += [sys._getframe().f_code]
while queue:
    code = queue.pop()
    if id(code) not in codes:
        codes[id(code)] = code
        queue += [c for c in code.co_consts if isinstance(c, types.CodeType)]

for address, code in codes.items():
    lines, last = [], None
    for offset in range(0, len(code.co_code), 2):
        line = line_of(code, offset)
        if line != last:
            lines.append([offset, line])
            last = line
    print(json.dumps([address, code.co_argcount, code.co_kwonlyargcount, code.co_flags, code.co_firstlineno,
                      code.co_name, getattr(code, "co_qualname", code.co_name), code.co_filename, lines]))
print('{"ready": true}', flush=True)
sys.stdin.read()
