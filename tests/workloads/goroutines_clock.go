// Goroutines that read the time above a recursion: Go calls the vdso on the thread's own stack. Prints `ready PID`.
package main

import (
	"fmt"
	"os"
	"time"
)

//go:noinline
func descend(depth int, begin time.Time) int64 {
	if depth > 0 {
		return descend(depth-1, begin) + 1
	}
	sum := int64(0)
	for i := 0; i < 1000; i++ {
		sum += time.Now().UnixNano() + int64(time.Since(begin))
	}
	return sum
}

func main() {
	done := make(chan int64)
	for i := 0; i < 2; i++ {
		go func() {
			for {
				done <- descend(20, time.Now())
			}
		}()
	}
	fmt.Println("ready", os.Getpid())
	for total := int64(0); ; {
		total += <-done
	}
}
