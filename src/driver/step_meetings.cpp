#include <utility>

#include "base/text.h"
#include "driver/rules.h"
#include "driver/stepper.h"

namespace lockstep::driver {

void Stepper::on(MeetingEntered event) {
  if (current(event.attempt, event.rank)) enter_meeting(event.rank, std::move(event.entered));
}

void Stepper::enter_meeting(int number, wire::MeetingEntered entered) {
  rank(number).last_progress = now;
  Meeting& meeting = state.meeting;
  if (entered.meeting != meeting.number) return refuse_latecomer(number, entered.meeting);
  meeting.present.insert(number);
  if (number == 0) meeting.value = std::move(entered.value);
  const Instant deadline = now + ticks(Seconds(entered.timeout));
  if (deadline < meeting.deadline) {
    meeting.deadline = deadline;
    meeting.timeout = Seconds(entered.timeout);
  }
  commit_what_is_whole();
  settle_meeting();
}

/// This meeting has already failed for the others. Once all have been told, their counts agree again.
void Stepper::refuse_latecomer(int number, int meeting) {
  const std::string why = state.phase == Phase::interrupted ? "the run is being stopped"
                                                            : "rank " + std::to_string(number) +
                                                                  " came too late to a barrier or broadcast: the "
                                                                  "other ranks wait no longer";
  act(ReleaseMeeting{number, {meeting, "[session] " + why, {}}});
}

void Stepper::settle_meeting() {
  Meeting& meeting = state.meeting;
  if (meeting.present.empty()) return;
  std::vector<int> missing, left;
  for (int i = 0; i < world_size(); ++i) {
    if (meeting.present.contains(i)) continue;
    missing.push_back(i);
    if (rank(i).finished || rank(i).awaits_calls) left.push_back(i);
  }
  std::string error;
  if (!missing.empty()) {
    if (!left.empty() && state.ending.after) end_all(meeting.present);  // they have been left as the run ended
    if (!left.empty())
      error = "[session] " + ranks_text(left) +
              " ended without entering this barrier or broadcast; missing: " + ranks_text(missing);
    else if (now >= meeting.deadline)
      error = "[session] waited " + human_duration(meeting.timeout.count()) +
              " in a barrier or broadcast; missing: " + ranks_text(missing);
    else
      return;
  }
  release_meeting(error);
}

void Stepper::release_meeting(const std::string& error) {
  Meeting& meeting = state.meeting;
  for (const int i : meeting.present) {
    rank(i).last_progress = now;
    if (error.empty()) rank(i).met = rank(0).reports;
    act(ReleaseMeeting{i, {meeting.number, error, error.empty() ? meeting.value : Bytes{}}});
  }
  const int number = meeting.number;
  meeting = {};
  meeting.number = number + 1;
}

}  // namespace lockstep::driver
