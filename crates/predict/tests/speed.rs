//! A prediction takes microseconds. Prints the time; asserts only what any machine reaches.

use std::time::Instant;

use md::Level;
use raidlab_predict::law::{
    Access, Array, Constants, Machine, Media, Single, Source, Work, WriteBack,
};

#[test]
fn a_sweep_of_100_000_configurations_takes_seconds_at_most() {
    let constants = Constants::built_in();
    let machine = Machine::new(Media::Rotating { rpm: 7200.0 });
    let mut single = Single::default();
    for work in Work::ALL {
        single.offer(work, 150.0, Source::Measured);
    }
    single.access_s = Some(0.0127);
    let levels = [Level::Raid0, Level::Raid1, Level::Raid10, Level::Raid5, Level::Raid6];
    let started = Instant::now();
    let (mut count, mut sum) = (0, 0.0);
    for members in 4..104 {
        for level in levels {
            for chunk in 0..20 {
                let array = Array::new(level, members, 4.0 * f64::from(chunk + 1));
                for work in &Work::ALL[..10] {
                    let access = Access::new(*work, WriteBack::Extents);
                    let found = raidlab_predict::law::predict(
                        &array, &machine, &access, &single, &constants,
                    );
                    sum += found.expect("inside the law").value;
                    count += 1;
                }
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("{count} configurations in {seconds:.3} s");
    assert_eq!(count, 100_000);
    assert!(sum.is_finite());
    // A thousand times what it takes: only a law that became a simulation would fail.
    assert!(seconds < 100.0);
}
