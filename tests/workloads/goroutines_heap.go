// Goroutines whose large allocations and garbage collection run on the system stack, above a recursion whose stack
// grows. Prints `ready PID`.
package main

import (
	"fmt"
	"os"
)

var kept [2][64][]byte

//go:noinline
func descend(depth, slot int) int {
	if depth > 0 {
		var room [128]byte
		room[depth] = 1
		return descend(depth-1, slot) + int(room[depth])
	}
	sum := 0
	for i := 0; i < 64; i++ {
		kept[slot][i] = make([]byte, 40000+i)
		sum += len(kept[slot][i])
	}
	return sum
}

func main() {
	done := make(chan int)
	for slot := 0; slot < 2; slot++ {
		go func(slot int) {
			for {
				part := make(chan int)
				go func() { part <- descend(40, slot) }()
				done <- <-part
			}
		}(slot)
	}
	fmt.Println("ready", os.Getpid())
	for total := 0; ; {
		total += <-done
	}
}
