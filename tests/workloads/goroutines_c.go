// Goroutines that call C, which calls Go, and a C thread that calls Go. Prints `ready PID`.
package main

/*
#include <pthread.h>
#include <stdint.h>

extern uint64_t fromC(uint64_t seed);

static __attribute__((noinline, unused)) uint64_t spinInC(uint64_t seed) {
	for (int i = 0; i < 20000; i++) {
		seed = seed * 31 + i;
		__asm__ volatile("" : "+r"(seed));
	}
	return seed;
}

static __attribute__((noinline, unused)) uint64_t descendInC(int depth, uint64_t seed) {
	uint64_t sum = depth > 0 ? descendInC(depth - 1, seed) : fromC(seed) + spinInC(seed);
	__asm__ volatile("" : "+r"(sum));
	return sum;
}

static __attribute__((unused)) void *threadOfC(void *unused) {
	for (uint64_t seed = 0;;)
		seed += descendInC(5, seed);
	return unused;
}

static __attribute__((unused)) int startThread(void) {
	pthread_t thread;
	return pthread_create(&thread, 0, threadOfC, 0);
}
*/
import "C"

import (
	"fmt"
	"os"
)

//go:noinline
func grow(depth int, seed uint64) uint64 {
	if depth > 0 {
		var room [128]byte
		room[depth] = byte(seed)
		return grow(depth-1, seed) + uint64(room[depth])
	}
	for i := uint64(0); i < 20000; i++ {
		seed = seed*31 + i
	}
	return seed
}

//export fromC
func fromC(seed C.uint64_t) C.uint64_t {
	return C.uint64_t(grow(20, uint64(seed)))
}

//go:noinline
func descend(depth int, seed uint64) uint64 {
	if depth > 0 {
		return descend(depth-1, seed) + 1
	}
	return uint64(C.descendInC(5, C.uint64_t(seed)))
}

func main() {
	if C.startThread() != 0 {
		panic("no thread")
	}
	for i := 0; i < 2; i++ {
		go func() {
			for seed := uint64(0); ; {
				// Its stack is small, and moves while C frames are in between.
				part := make(chan uint64)
				go func() { part <- descend(5, seed) }()
				seed += <-part
			}
		}()
	}
	fmt.Println("ready", os.Getpid())
	select {}
}
