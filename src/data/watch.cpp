#include "data/watch.h"

namespace lockstep::data {
namespace {

thread_local Watch* watch_of_thread = nullptr;

}  // namespace

Watch* Watch::current() { return watch_of_thread; }

Watch::Scope::Scope(Watch& watch) : before_(watch_of_thread) { watch_of_thread = &watch; }

Watch::Scope::~Scope() { watch_of_thread = before_; }

}  // namespace lockstep::data
