// Goroutines above a recursion, with allocation and garbage collection, which run on the system stack. Prints
// `ready PID`.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

//go:noinline
func descend(depth int) uint64 {
	if depth == 0 {
		sum := uint64(0)
		for i := uint64(0); i < 100000; i++ {
			sum = sum*31 + i
		}
		return sum
	}
	return descend(depth-1) + 1
}

// Allocation and garbage collection run on the system stack.
func work(done chan<- uint64) {
	for i := 0; ; i++ {
		text := strings.Repeat("x", 2000) + fmt.Sprint(i)
		done <- descend(20) + uint64(len(text))
	}
}

func main() {
	done := make(chan uint64, 16)
	for i := 0; i < 2; i++ {
		go work(done)
	}
	fmt.Println("ready", os.Getpid())
	total := uint64(0)
	for {
		total += <-done
		if total%64 == 0 {
			runtime.GC()
		}
	}
}
