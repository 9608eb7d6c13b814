// JavaScript that spends its time in V8's builtins, its interpreter and generated code. Prints `ready PID`.
function mix(text) {
  let sum = 0;
  for (const code of text.split("").map((c) => c.charCodeAt(0))) sum = (sum * 31 + code) | 0;
  return sum;
}
function descend(depth) {
  return depth === 0 ? mix("deep contexts ".repeat(40)) : descend(depth - 1) + 1;
}
function sorted(length) {
  return Array.from({ length }, (_, i) => (i * 7919) % length).sort((a, b) => a - b)[0];
}
function turn() {
  for (let i = 0; i < 200; i++) {
    descend(20);
    sorted(50);
    JSON.parse(JSON.stringify({ list: [1, 2, { text: "x".repeat(i) }] }));
    "a1b2".replace(/\d/g, (digit) => digit + 1);
  }
  setImmediate(turn);
}
console.log("ready " + process.pid);
turn();
