#pragma once

#include <concepts>
#include <lockstep/tune/tuner.h>
#include <memory>
#include <optional>

namespace lockstep::tune {

/// A trainable of a class: each trial makes an object and calls `Value step()` until the metrics have `"done": true` or
/// the trial is stopped. The class may also have
///
///     void setup(const Value& config);          // once, at the beginning; or it is constructed with the config
///     Value save_checkpoint();                  // a dict; called after every `checkpoint_frequency` steps
///     void load_checkpoint(const Value& saved); // to go on after a pause or an interruption
///     void cleanup();                           // at the end
///
/// As in `Tuner tuner(tune::class_trainable<Counter>(), options)`.
template <class Steps>
Trainable class_trainable(int checkpoint_frequency = 1) {
  return Trainable([checkpoint_frequency](Session& session) {
    const auto make = [&] {
      if constexpr (std::constructible_from<Steps, const Value&> && !std::default_initializable<Steps>)
        return std::make_unique<Steps>(session.config());
      else
        return std::make_unique<Steps>();
    };
    const auto trial = make();
    if constexpr (requires { trial->setup(session.config()); }) trial->setup(session.config());
    if constexpr (requires(const Value& saved) { trial->load_checkpoint(saved); })
      if (const auto checkpoint = session.checkpoint()) trial->load_checkpoint(checkpoint->to_dict());
    const auto clean = [&] {
      if constexpr (requires { trial->cleanup(); }) trial->cleanup();
    };
    try {
      for (int made = 1; !session.should_stop(); ++made) {
        const Value metrics = trial->step();
        std::optional<Checkpoint> checkpoint;
        if constexpr (requires { trial->save_checkpoint(); })
          if (checkpoint_frequency > 0 && made % checkpoint_frequency == 0)
            checkpoint = Checkpoint::from_dict(trial->save_checkpoint());
        session.report(metrics, checkpoint);
        if (metrics.value("done", false)) break;
      }
    } catch (...) {
      clean();
      throw;
    }
    clean();
  });
}

}  // namespace lockstep::tune
