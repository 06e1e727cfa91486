//! The calling thread: its stack, and which one it is.

/// Bytes of a thread's stack that [`touch_stack`] makes present.
const STACK_BYTES: usize = 128 << 10;

/// Makes the pages of the calling thread's stack present that it may need later.
#[inline(never)]
pub fn touch_stack() {
    std::hint::black_box(&mut [0_u8; STACK_BYTES]);
}

/// As [`touch_stack`], at the thread's first call: for threads that others have started.
pub fn touch_stack_once() {
    thread_local! {
        static TOUCHED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    if !TOUCHED.replace(true) {
        touch_stack();
    }
}

/// A number that no other thread has that runs now.
#[inline]
pub fn thread_mark() -> usize {
    thread_local! {
        static MARK: u8 = const { 0 };
    }
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_marks_of_their_own() {
        touch_stack();
        touch_stack_once();
        touch_stack_once();
        let own = thread_mark();
        assert_eq!(own, thread_mark());
        let other = std::thread::scope(|scope| scope.spawn(thread_mark).join().expect("no panic"));
        assert_ne!(own, other);
    }
}
