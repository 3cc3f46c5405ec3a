# Draws the figures of C8 from the CSV beside this script: gnuplot plot.gp
set terminal svg size 800,420 dynamic
set datafile separator comma
set key outside below
set grid

set output 'figure-5.18.svg'
set title 'jobs in the system and jobs placed (seed 1)' noenhanced
set xlabel 'time, s' noenhanced
set ylabel 'jobs' noenhanced
plot for [column=2:3] 'figure-5.18.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced

set output 'figure-5.19.svg'
set title 'mean hypothetical utility, and utility at completion by goal factor (seed 1)' noenhanced
set xlabel 'time, s' noenhanced
set ylabel 'utility' noenhanced
plot for [column=2:5] 'figure-5.19.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced

set output 'figure-5.20.svg'
set title 'virtualization operations so far (seed 1)' noenhanced
set xlabel 'time, s' noenhanced
set ylabel 'operations' noenhanced
plot for [column=2:6] 'figure-5.20.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced
